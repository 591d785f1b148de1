"""What the controller knows of the cluster, kept by watches: nodes, their GPUs' objects, and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.kind_informer import KindInformer
from aliquot.kubernetes.client.objects import ClusterPolicy, ConfigMap, Node
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice

Changed = Callable[[set[str]], None]


class ClusterInformers:
    """``settings`` is the ConfigMap that people write, ``effective`` the one that the controller writes. ``changed`` is
    called with the names of what came, changed or went, ``nodes_changed`` with those of nodes.
    """

    def __init__(self, nodes_changed: Changed, changed: Changed, timing: WatchTiming) -> None:
        self.nodes: KindInformer[Node] = KindInformer(Node, nodes_changed, timing)
        self.policies: KindInformer[ClusterPolicy] = KindInformer(ClusterPolicy, changed, timing)
        self.devices: KindInformer[SRIOVGPUDevice] = KindInformer(SRIOVGPUDevice, changed, timing)
        self.settings: KindInformer[ConfigMap] = KindInformer(ConfigMap, changed, timing)
        self.effective: KindInformer[ConfigMap] = KindInformer(ConfigMap, changed, timing)

    async def follow(self, api: Api) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.nodes.follow(api))
            group.create_task(self.policies.follow(api))
            group.create_task(self.devices.follow(api))
            group.create_task(self.settings.follow(api, name=names.SETTINGS_MAP))
            group.create_task(self.effective.follow(api, name=names.EFFECTIVE_MAP))

    @property
    def synced(self) -> bool:
        """Everything was read once."""
        return all(informer.synced for informer in self._informers)

    @property
    def unavailable(self) -> str:
        """Why something cannot be read now; empty if all can."""
        return next((informer.unavailable for informer in self._informers if informer.unavailable), "")

    @property
    def _informers(self) -> tuple[KindInformer[Any], ...]:
        return self.nodes, self.policies, self.devices, self.settings, self.effective
