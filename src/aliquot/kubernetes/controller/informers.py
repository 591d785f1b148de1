"""What the controller knows of the cluster, kept by watches: nodes, their GPUs' objects, and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.kind_watch import Shelf
from aliquot.kubernetes.client.objects import ClusterPolicy, ConfigMap, Node
from aliquot.kubernetes.client.watch import Timing
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice

Changed = Callable[[set[str]], None]


class World:
    """``settings`` is the ConfigMap that people write, ``effective`` the one that the controller writes. ``changed`` is
    called with the names of what came, changed or went, ``nodes_changed`` with those of nodes.
    """

    def __init__(self, nodes_changed: Changed, changed: Changed, timing: Timing) -> None:
        self.nodes: Shelf[Node] = Shelf(Node, nodes_changed, timing)
        self.policies: Shelf[ClusterPolicy] = Shelf(ClusterPolicy, changed, timing)
        self.devices: Shelf[SRIOVGPUDevice] = Shelf(SRIOVGPUDevice, changed, timing)
        self.settings: Shelf[ConfigMap] = Shelf(ConfigMap, changed, timing)
        self.effective: Shelf[ConfigMap] = Shelf(ConfigMap, changed, timing)

    async def follow(self, api: Api) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.follow(api))
            group.create_task(self.policies.follow(api))
            group.create_task(self.devices.follow(api))
            group.create_task(self.settings.follow(api, name=names.SETTINGS_MAP))
            group.create_task(self.effective.follow(api, name=names.EFFECTIVE_MAP))

    @property
    def known(self) -> bool:
        """Everything was read once."""
        return all(shelf.known for shelf in self._shelves)

    @property
    def away(self) -> str:
        """Why something cannot be read now; empty if all can."""
        return next((shelf.away for shelf in self._shelves if shelf.away), "")

    @property
    def _shelves(self) -> tuple[Shelf[Any], ...]:
        return self.nodes, self.policies, self.devices, self.settings, self.effective
