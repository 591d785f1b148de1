"""The cluster's state for VMs, kept by watches: Harvester's objects, VMs, KubeVirt's settings.

Every replica of the controller keeps it: webhooks and capacity pages read it, and the leader works from it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.errors import NotFoundError
from aliquot.kubernetes.client.informer import KIND_TIMING, Informer, InformerGroup, Key
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.harvester_peripherals import SRIOVNetworkDevice, USBDevice, USBDeviceClaim
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.kinds.vm_claims import VmClaim, is_launcher
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, ClusterObservation, measure
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand, vm_demand
from aliquot.kubernetes.virtual_machines.kubevirt.permitted_devices import KubeVirtSettings
from aliquot.kubernetes.virtual_machines.kubevirt.reservations import VmReservations

KUBEVIRT_NAMESPACE = "harvester-system"
T = TypeVar("T", bound=KubeObject)
ChangeCallback = Callable[[], None]


class VmClusterInformers(InformerGroup):
    """The informers. The owners of ``nodes`` and ``gpus`` follow these two.

    Who needs the devices of ResourceClaims follows ``resource_claims``. Nothing waits for them: clusters may lack them.

    ``on_change`` is called when anything changed, ``on_claims_changed`` when a claim or a PCIDevice changed.
    """

    def __init__(
        self,
        nodes: Informer[Node],
        gpus: Informer[SRIOVGPUDevice],
        on_change: ChangeCallback,
        *,
        namespace: str = KUBEVIRT_NAMESPACE,
        timing: WatchTiming = KIND_TIMING,
        clock: Callable[[], float] = time.monotonic,
        on_claims_changed: ChangeCallback = lambda: None,
        resource_claims: Informer[Any] | None = None,
    ) -> None:
        def notify(_: set[Key]) -> None:
            on_change()

        def notify_claims(_: set[Key]) -> None:
            on_change()
            on_claims_changed()

        self.nodes, self.gpus = nodes, gpus
        self.namespace = namespace
        self.vgpus = Informer(VGPUDevice, notify, timing=timing)
        self.migs = Informer(MigConfiguration, notify, timing=timing)
        self.functions = Informer(PCIDevice, notify_claims, timing=timing)
        self.claims = Informer(PCIDeviceClaim, notify_claims, timing=timing)
        self.usb = Informer(USBDevice, notify, timing=timing)
        self.usb_claims = Informer(USBDeviceClaim, notify, timing=timing)
        self.network = Informer(SRIOVNetworkDevice, notify, timing=timing)
        self.vms = Informer(VirtualMachine, self._vms_changed, namespace=ALL_NAMESPACES, timing=timing)
        self.instances = Informer(VirtualMachineInstance, notify, namespace=ALL_NAMESPACES, timing=timing)
        self.kubevirts = Informer(KubeVirtSettings, notify, namespace=namespace, timing=timing)
        self.resource_claims = resource_claims or _claims_of_vms(notify, timing)
        super().__init__(
            *(self.vgpus, self.migs, self.functions, self.claims, self.usb, self.usb_claims, self.network),
            *(self.vms, self.instances, self.kubevirts),
            shared=(nodes, gpus),
        )
        self._on_change, self._clock = on_change, clock
        self._reservations = VmReservations()

    @property
    def awaits_claims(self) -> bool:
        """True while nothing says yet which ResourceClaims there are, or that they cannot be read."""
        return not (self.resource_claims.synced or self.resource_claims.unavailable)

    def capacity(self) -> Capacity:
        return measure(
            ClusterObservation(
                self.nodes.items,
                self.vgpus.items,
                self.functions.items,
                self.claims.items,
                self.vms.items,
                self.instances.items,
                self._reservations.active(self._clock()),
            )
        )

    def snapshot(self) -> AdmissionSnapshot:
        """Return the current content."""
        return AdmissionSnapshot(
            gpus=self.gpus.by_name,
            vgpus=self.vgpus.by_name,
            migs=self.migs.by_name,
            functions=self.functions.by_name,
            claims=self.claims.by_name,
            usb_claims=self.usb_claims.by_name,
            usb=self.usb.by_name,
            network=self.network.by_name,
            nodes=self.nodes.by_name,
            vms={each.key: each for each in self.vms.items},
            instances={each.key: each for each in self.instances.items},
            resource_claims={each.key: each for each in self.resource_claims.items},
        )

    async def fresh_snapshot(self, api: Api) -> AdmissionSnapshot:
        """Return the snapshot with VMs and their claims read from the API server instead of the watch.

        Raise ApiError if that fails.
        """
        vms, instances = await _list_all(api, VirtualMachine), await _list_all(api, VirtualMachineInstance)
        claims = () if self.resource_claims.absent else await _list_all(api, VmClaim)
        return msgspec.structs.replace(
            self.snapshot(),
            vms={m.key: m for m in vms},
            instances={i.key: i for i in instances},
            resource_claims={c.key: c for c in claims},
        )

    def reserve(self, demand: VmDemand) -> None:
        """Count the demand of an admitted VM, immediately and until its object shows it."""
        self._reservations.reserve(demand, self._clock())

    def _vms_changed(self, changed: set[Key]) -> None:
        for namespace, name in changed:
            vm = self.vms.get(name, namespace)
            if vm is None:
                self._reservations.drop((namespace, name))
            elif vm.should_run:
                self._reservations.observe(vm_demand(vm))
        self._on_change()


async def _list_all(api: Api, kind: type[T]) -> tuple[T, ...]:
    """List a kind in all namespaces; nothing if the cluster does not have the kind."""
    try:
        return await api.list(kind, ALL_NAMESPACES)
    except NotFoundError:
        return ()


def _claims_of_vms(changed: Callable[[set[Key]], None], timing: WatchTiming) -> Informer[Any]:
    """Return an informer of all claims, for which only those of VMs are changes."""
    return Informer(VmClaim, changed, namespace=ALL_NAMESPACES, relevant_part=_use_by_vms, timing=timing)


def _use_by_vms(claim: VmClaim) -> object:
    """Return what decides which devices VMs have by a claim. Most claims of a cluster are of other pods."""
    status = claim.status
    return (status.pods, status.reported) if any(map(is_launcher, status.pods)) else ()
