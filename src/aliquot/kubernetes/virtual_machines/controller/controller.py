"""The part of the controller for VMs. It is level-triggered: each round writes only differences."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.informer import KIND_TIMING, Informer
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.client.work_loop import WorkLoop
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice
from aliquot.kubernetes.virtual_machines.controller.capacity_metrics import CapacityCollector
from aliquot.kubernetes.virtual_machines.controller.capacity_pages import CapacityPages
from aliquot.kubernetes.virtual_machines.controller.claim_informers import VmClaimInformers
from aliquot.kubernetes.virtual_machines.controller.definition_repair import DefinitionRepair, RepairTiming
from aliquot.kubernetes.virtual_machines.controller.informers import KUBEVIRT_NAMESPACE, VmClusterInformers
from aliquot.kubernetes.virtual_machines.controller.node_cleanup import PATIENCE_S, NodeCleanup
from aliquot.kubernetes.virtual_machines.controller.permitted_devices import PermittedDevicesWriter
from aliquot.kubernetes.virtual_machines.controller.pools import PoolController
from aliquot.metrics.controller_metrics import ControllerMetrics

GATHER_S = 0.2
RETRY = Backoff(first=0.5, longest=60.0)
"""The back-off after a failed write."""


class VmControllerTiming(msgspec.Struct, frozen=True):
    """The timing of the controller."""

    watch: WatchTiming = KIND_TIMING
    patience_s: float = PATIENCE_S
    """Seconds for which a node may be missing before its objects are deleted."""
    repair: RepairTiming = RepairTiming()
    """The timing of the repair of definitions."""


class VmController:
    """The controller of devices for VMs. It writes only while ``leads`` returns True.

    ``pages`` are for pollers and belong on a port with TLS. ``on_claims_changed`` is called when claims changed.
    """

    def __init__(
        self,
        api: Api,
        leads: Callable[[], bool],
        shared_informers: tuple[Informer[Node], Informer[SRIOVGPUDevice]],
        metrics: ControllerMetrics,
        *,
        namespace: str = KUBEVIRT_NAMESPACE,
        timing: VmControllerTiming | None = None,
        on_claims_changed: Callable[[], None] = lambda: None,
    ) -> None:
        timing = timing or VmControllerTiming()
        self.api, self._leads = api, leads
        self.informers = VmClusterInformers(
            *shared_informers, self.wake, namespace=namespace, timing=timing.watch, on_claims_changed=on_claims_changed
        )
        self._claim_informers = VmClaimInformers(self.informers, timing=timing.watch)
        self.pages = CapacityPages(self.informers, self._claim_informers).by_path
        metrics.registry.register(CapacityCollector(self.informers, self._claim_informers))
        self._permitted_devices = PermittedDevicesWriter(api, self.informers, metrics)
        self._node_cleanup = NodeCleanup(api, self.informers, metrics, patience_s=timing.patience_s)
        self._definitions = DefinitionRepair(api, leads, metrics, timing=timing.repair)
        self._pools = PoolController(api, self.informers, metrics, self.wake, timing=timing.watch)
        self._rounds = WorkLoop(GATHER_S, RETRY)

    def wake(self) -> None:
        """Start a round: nodes, GPUs or the leadership changed."""
        self._rounds.wake()
        self._definitions.wake()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informers.follow(self.api))
            group.create_task(self._claim_informers.follow(self.api))
            group.create_task(self._pools.follow(self.api))
            group.create_task(self._rounds.run(self._work))
            group.create_task(self._definitions.run())

    async def _work(self) -> bool | None:
        if not self._leads() or not self.informers.synced:
            return None
        done = await self._permitted_devices.run(self._leads)
        done &= await self._pools.run(self._leads)
        if (due := await self._node_cleanup.run(self._leads)) is not None:
            self._rounds.wake_in(due)
        return done
