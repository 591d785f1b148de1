"""What the cluster has for virtual machines, kept by watches: objects, machines, KubeVirt's settings.

Every replica of the controller keeps it: webhooks and the capacity pages answer from it, the leader works from it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.kind_informer import KIND_TIMING, KindInformer
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, ClusterObservation, measure
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand, vm_demand
from aliquot.kubernetes.virtual_machines.kubevirt.permitted_devices import KubeVirtSettings
from aliquot.kubernetes.virtual_machines.kubevirt.reservations import VmReservations

KUBEVIRT_NAMESPACE = "harvester-system"
ChangeCallback = Callable[[], None]


class VmClusterInformers:
    """``nodes`` and ``gpus`` are followed by whoever owns them, everything else by ``follow``. ``items`` of machines
    and instances are by ``namespace/name``. ``on_change`` is called whenever anything did,
    ``on_claims_changed`` when a claim or a PCIDevice did.
    """

    def __init__(
        self,
        nodes: KindInformer[Node],
        gpus: KindInformer[SRIOVGPUDevice],
        on_change: ChangeCallback,
        *,
        namespace: str = KUBEVIRT_NAMESPACE,
        timing: WatchTiming = KIND_TIMING,
        clock: Callable[[], float] = time.monotonic,
        on_claims_changed: ChangeCallback = lambda: None,
    ) -> None:
        def notify(_: set[str]) -> None:
            on_change()

        def notify_claims(_: set[str]) -> None:
            on_change()
            on_claims_changed()

        self.nodes, self.gpus = nodes, gpus
        self.namespace = namespace
        self.vgpus: KindInformer[VGPUDevice] = KindInformer(VGPUDevice, notify, timing)
        self.migs: KindInformer[MigConfiguration] = KindInformer(MigConfiguration, notify, timing)
        self.functions: KindInformer[PCIDevice] = KindInformer(PCIDevice, notify_claims, timing)
        self.claims: KindInformer[PCIDeviceClaim] = KindInformer(PCIDeviceClaim, notify_claims, timing)
        self.vms: KindInformer[VirtualMachine] = KindInformer(VirtualMachine, self._vms_changed, timing)
        self.instances: KindInformer[VirtualMachineInstance] = KindInformer(VirtualMachineInstance, notify, timing)
        self.kubevirts: KindInformer[KubeVirtSettings] = KindInformer(KubeVirtSettings, notify, timing)
        self._on_change, self._clock = on_change, clock
        self._reservations = VmReservations()

    async def follow(self, api: Api) -> None:
        """For ever."""
        async with asyncio.TaskGroup() as group:
            for informer in (self.vgpus, self.migs, self.functions, self.claims):
                group.create_task(informer.follow(api))
            group.create_task(self.vms.follow(api, namespace=ALL_NAMESPACES))
            group.create_task(self.instances.follow(api, namespace=ALL_NAMESPACES))
            group.create_task(self.kubevirts.follow(api, namespace=self.namespace))

    @property
    def all_informers(self) -> tuple[KindInformer[Any], ...]:
        return (
            *(self.nodes, self.gpus, self.vgpus, self.migs, self.functions, self.claims),
            *(self.vms, self.instances, self.kubevirts),
        )

    @property
    def synced(self) -> bool:
        """Everything was read once. A kind that the cluster does not have is known: there is nothing of it."""
        return all(informer.synced for informer in self.all_informers)

    @property
    def unavailable(self) -> str:
        """Why something cannot be read now; empty if all can."""
        return next((informer.unavailable for informer in self.all_informers if informer.unavailable), "")

    def capacity(self) -> Capacity:
        return measure(
            ClusterObservation(
                tuple(self.nodes.items.values()),
                tuple(self.vgpus.items.values()),
                tuple(self.functions.items.values()),
                tuple(self.claims.items.values()),
                tuple(self.vms.items.values()),
                tuple(self.instances.items.values()),
                self._reservations.active(self._clock()),
            )
        )

    def reserve(self, demand: VmDemand) -> None:
        """A machine was admitted with this; it counts at once, and until its object shows it."""
        self._reservations.reserve(demand, self._clock())

    def _vms_changed(self, changed: set[str]) -> None:
        for name in changed:
            vm = self.vms.items.get(name)
            if vm is None:
                namespace, _, deleted = name.partition("/")
                self._reservations.drop((namespace, deleted))
            elif vm.should_run:
                self._reservations.observe(vm_demand(vm))
        self._on_change()
