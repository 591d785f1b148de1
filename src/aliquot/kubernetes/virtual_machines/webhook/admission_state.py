"""What verdicts are made from: the controller's world of watches, and USB devices, which lie behind controllers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.errors import NotFoundError
from aliquot.kubernetes.client.informer import KIND_TIMING, Informer, InformerGroup
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.virtual_machines.controller.informers import VmClusterInformers as Watched
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import (
    AdmissionSnapshot,
    USBDevice,
    USBDeviceClaim,
)
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import VmClusterState
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand

T = TypeVar("T", bound=KubeObject)


class AdmissionState:
    """``informers`` is followed by whoever made it, USB devices by ``follow``."""

    def __init__(self, informers: Watched, accounts: frozenset[str], timing: WatchTiming = KIND_TIMING) -> None:
        self._informers, self._accounts = informers, accounts
        self._usb = Informer(USBDevice, timing=timing)
        self._usb_claims = Informer(USBDeviceClaim, timing=timing)
        self.follow = InformerGroup(self._usb, self._usb_claims).follow

    @property
    def missing(self) -> str:
        """What was not read yet: a sentence; "" where a verdict can be made. USB devices that cannot be read are none
        of ours to wait for.
        """
        unknown = next((informer for informer in self._informers.all_informers if not informer.synced), None)
        return "" if unknown is None else unknown.unavailable or f"{unknown.kind.TYPE} were not read yet"

    def snapshot(self) -> AdmissionSnapshot:
        """Everything as it is known now."""
        informers = self._informers
        return AdmissionSnapshot(
            gpus=informers.gpus.by_name,
            vgpus=informers.vgpus.by_name,
            migs=informers.migs.by_name,
            functions=informers.functions.by_name,
            claims=informers.claims.by_name,
            usb_claims=self._usb_claims.by_name,
            usb=self._usb.by_name,
            nodes=informers.nodes.by_name,
            vms={each.key: each for each in informers.vms.items},
            instances={each.key: each for each in informers.instances.items},
            accounts=self._accounts,
        )

    async def fresh_snapshot(self, api: Api) -> AdmissionSnapshot:
        """The same with machines read from the API server itself. Raises ApiError."""
        vms, instances = await _list_all(api, VirtualMachine), await _list_all(api, VirtualMachineInstance)
        return msgspec.structs.replace(
            self.snapshot(), vms={m.key: m for m in vms}, instances={i.key: i for i in instances}
        )

    def cluster(self) -> VmClusterState:
        """What machines are judged by."""
        return VmClusterState(self.snapshot(), self._permitted(), self._informers.capacity())

    @property
    def reserve(self) -> Callable[[VmDemand], None]:
        """A machine that was just let in counts at once."""
        return self._informers.reserve

    def _permitted(self) -> frozenset[str] | None:
        """None without a KubeVirt: nobody says what is permitted."""
        found = self._informers.kubevirts.items
        lists = [(each.spec.configuration.permitted_host_devices or {}).values() for each in found]
        entries = [entry for those in lists for entry_list in those for entry in entry_list or ()]
        return frozenset(str(each.get("resourceName", "")) for each in entries) if found else None


async def _list_all(api: Api, kind: type[T]) -> tuple[T, ...]:
    """Nothing where the cluster does not have the kind."""
    try:
        return await api.list(kind, ALL_NAMESPACES)
    except NotFoundError:
        return ()
