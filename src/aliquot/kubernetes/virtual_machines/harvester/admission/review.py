"""The entry point of reviews: a request about a Harvester object, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from aliquot.errors import Message
from aliquot.kubernetes.client.admission_review import DELETE, UPDATE, AdmissionRequest, AdmissionVerdict
from aliquot.kubernetes.client.errors import ApiError, UnreadableObjectError
from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject
from aliquot.kubernetes.kinds.harvester import ADMISSION_KINDS, SRIOVGPUDevice, VGPUDevice, skips_mig
from aliquot.kubernetes.kinds.harvester_names import object_name
from aliquot.kubernetes.kinds.harvester_peripherals import PERIPHERAL_KINDS
from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool
from aliquot.kubernetes.virtual_machines.harvester.admission import mig_configurations as migs
from aliquot.kubernetes.virtual_machines.harvester.admission import network_devices as network
from aliquot.kubernetes.virtual_machines.harvester.admission import pci_device_claims as claims
from aliquot.kubernetes.virtual_machines.harvester.admission import sriov_gpu_devices as gpus
from aliquot.kubernetes.virtual_machines.harvester.admission import usb_device_claims as usb_claims
from aliquot.kubernetes.virtual_machines.harvester.admission import usb_devices as usb
from aliquot.kubernetes.virtual_machines.harvester.admission import vgpu_devices as vgpus
from aliquot.kubernetes.virtual_machines.harvester.admission import vgpu_pools as pools
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import label_warnings, missing_device_warnings
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, ObjectEdit
from aliquot.kubernetes.virtual_machines.harvester.vgpu_slots import physical_address

K = TypeVar("K", bound=KubeObject)
_KINDS: tuple[type[KubeObject], ...] = (*ADMISSION_KINDS, *PERIPHERAL_KINDS, VGPUPool)
_RULES: dict[str, tuple[type[Any], Any]] = {
    kind.TYPE.plural: (kind, rules)
    for kind, rules in zip(_KINDS, (migs, gpus, vgpus, claims, usb, usb_claims, network, pools), strict=True)
}
"""By plural resource name."""
_SWITCHED = ("sriovgpudevices", "vgpudevices", "migconfigurations")
"""The kinds whose objects enable devices of VMs."""


def judge(request: AdmissionRequest, snapshot: AdmissionSnapshot) -> AdmissionVerdict:
    """Review a write.

    Other kinds, writes of our own programs, and statuses are always allowed.
    """
    kind, rules = _RULES.get(request.resource.resource, (None, None))
    if kind is None or request.resource.group != kind.TYPE.group or request.sub_resource or snapshot.trusts(request):
        return AdmissionVerdict()
    try:
        old, new = request.old(kind), request.new(kind)
    except UnreadableObjectError as error:
        return AdmissionVerdict(reasons=(f"this is {error.what}",))
    except ApiError as error:
        return AdmissionVerdict(reasons=(error.brief,))
    # The API server sends no name with generateName, nor for each object of a collection delete.
    name = request.name or next((each.name for each in (new, old) if each is not None), "")
    edit: ObjectEdit[KubeObject] = ObjectEdit(name, request.user, old, new)
    if new is not None and new.metadata.deletion_timestamp is not None:
        return AdmissionVerdict()  # being deleted: it must be possible to remove finalizers
    reasons = tuple(dict.fromkeys(map(str, _reasons(edit, rules, snapshot))))
    warnings = [*getattr(rules, "warnings", _no_warnings)(edit, snapshot)]
    if old is None and new is not None and not reasons and kind in ADMISSION_KINDS:
        warnings += missing_device_warnings(_device_name(name, new), new.spec.node_name, snapshot)
        if isinstance(new, SRIOVGPUDevice | VGPUDevice):
            kind_name = new.TYPE.kind.lower()
            warnings += label_warnings(kind_name, name, new.spec.node_name, new.metadata.labels)
    return AdmissionVerdict(reasons=reasons, warnings=tuple(map(str, warnings)))


def _device_name(name: str, new: KubeObject) -> str:
    """Return the name of the PCIDevice that an object is about: for a slot, that of its GPU."""
    if not isinstance(new, VGPUDevice):
        return name
    return object_name(new.spec.node_name, physical_address(new.spec.address))


def withdraws_device(request: AdmissionRequest) -> bool:
    """Report whether the write takes a device from its user: a deletion, a disabling, or another MIG mode."""
    if request.operation == DELETE:
        return request.resource.resource != "migconfigurations"
    if request.operation != UPDATE or request.resource.resource not in _SWITCHED:
        return False
    old, new = request.old(_Switch), request.new(_Switch)
    if old is None or new is None or not old.spec.enabled:
        return False
    return not new.spec.enabled or skips_mig(old) != skips_mig(new)


class _Enabled(ApiStruct, frozen=True):
    enabled: bool = False


class _Switch(KubeObject, frozen=True):
    spec: _Enabled = _Enabled()


def _reasons(edit: ObjectEdit[KubeObject], rules: Any, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    if edit.new is None and edit.old is not None:
        yield from rules.delete(edit, edit.old, snapshot)
    elif edit.old is None and edit.new is not None:
        yield from rules.create(edit, edit.new, snapshot)
    elif edit.old is not None and edit.new is not None:
        yield from rules.update(edit, edit.old, edit.new, snapshot)


def _no_warnings(edit: ObjectEdit[KubeObject], snapshot: AdmissionSnapshot) -> Iterator[Message]:
    yield from ()
