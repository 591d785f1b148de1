"""The controller's part for virtual machines. Level-triggered, as the rest of it: what is written is a difference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.kind_watch import KIND_TIMING, Shelf
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import Timing
from aliquot.kubernetes.client.work_loop import Rounds
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice
from aliquot.kubernetes.virtual_machines.controller.capacity_metrics import Figures
from aliquot.kubernetes.virtual_machines.controller.capacity_pages import Pages
from aliquot.kubernetes.virtual_machines.controller.informers import KUBEVIRT_NAMESPACE, World
from aliquot.kubernetes.virtual_machines.controller.node_cleanup import PATIENCE_S, Removal
from aliquot.kubernetes.virtual_machines.controller.permitted_devices import Permit
from aliquot.metrics.controller_metrics import Tally

GATHER_S = 0.2
RETRY = Backoff(first=0.5, longest=60.0)
"""The pause before what failed is tried again."""


class Pace(msgspec.Struct, frozen=True):
    """How watches are kept, and how long a node may be missing before its objects go, in seconds."""

    watch: Timing = KIND_TIMING
    patience_s: float = PATIENCE_S


class DevicesPart:
    """``leads`` says whether this process may write. ``wake`` is to be called when nodes or GPUs changed. ``pages`` are
    what pollers read; they belong on a port with TLS. ``claimed`` is called when claims changed.
    """

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        shelves: tuple[Shelf[Node], Shelf[SRIOVGPUDevice]],
        tally: Tally,
        *,
        namespace: str = KUBEVIRT_NAMESPACE,
        pace: Pace | None = None,
        claimed: Callable[[], None] = lambda: None,
    ) -> None:
        pace = pace or Pace()
        self.api, self._leads = api, leads
        self.world = World(*shelves, self.wake, namespace=namespace, timing=pace.watch, claimed=claimed)
        self.pages = Pages(self.world).by_path
        tally.registry.register(Figures(self.world))
        self._permit = Permit(api, self.world, tally)
        self._removal = Removal(api, self.world, tally, patience_s=pace.patience_s)
        self._rounds = Rounds(GATHER_S, RETRY)

    def wake(self) -> None:
        """Something changed, or leadership did."""
        self._rounds.wake()

    async def run(self) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.world.follow(self.api))
            group.create_task(self._rounds.run(self._work))

    async def _work(self) -> bool | None:
        if not self._leads() or not self.world.known:
            return None
        done = await self._permit.run(self._leads)
        if (due := await self._removal.run(self._leads)) is not None:
            self._rounds.wake_in(due)
        return done
