"""The vGPU that each virtual function should carry, and the existing ones that may be destroyed."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

import msgspec

from aliquot.core.model.desired import DesiredVgpu
from aliquot.core.model.inventory import Vgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu.rules import find_type
from aliquot.kubernetes.gpu.reasons import reason_word
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import UNTRACKED_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import PhysicalGpu
from aliquot.kubernetes.virtual_machines.harvester.plugin_parameters import correct_command, requested_parameters
from aliquot.kubernetes.virtual_machines.harvester.reasons import HELD, ObjectVerdict
from aliquot.kubernetes.virtual_machines.harvester.vgpu_slots import slot_uuid


class VgpuAssignment(msgspec.Struct, frozen=True):
    """The decision about vGPUs, by virtual function."""

    keep: Mapping[str, DesiredVgpu]
    """vGPUs that stay."""
    create: Mapping[str, DesiredVgpu]
    """vGPUs to create."""
    verdicts: Mapping[str, ObjectVerdict]
    """Why an object is not in its desired state."""
    restoring: bool = False
    """Every vGPU to create existed before, and was lost in a reboot."""

    @property
    def all_vgpus(self) -> tuple[DesiredVgpu, ...]:
        return (*self.keep.values(), *self.create.values())


def status_uuid(physical_gpu: PhysicalGpu, vgpu: Vgpu) -> str:
    """Return ``status.uuid`` of a vGPU: the mdev's UUID; with vendor-specific VFIO, the number of the type, as in
    Harvester.
    """
    return str(vgpu.type_id) if physical_gpu.uses_vendor_vfio else vgpu.uuid


def is_tracked_by(physical_gpu: PhysicalGpu, found: VGPUDevice, vgpu: Vgpu) -> bool:
    """Report whether the object records exactly this vGPU as its own. Otherwise it belongs to another creator."""
    known = found.status.uuid
    return known == status_uuid(physical_gpu, vgpu) if known else bool(found.status.state)


def is_owned(physical_gpu: PhysicalGpu, found: VGPUDevice | None, vgpu: Vgpu) -> bool:
    """Report whether the object owns a vGPU of its function: it requested the vGPU, or the vGPU was created for it."""
    if found is None:
        return has_known_type(physical_gpu, vgpu)
    return is_tracked_by(physical_gpu, found, vgpu) or (
        found.spec.enabled and is_of_type(physical_gpu, found.spec.type_name, vgpu)
    )


def has_known_type(physical_gpu: PhysicalGpu, vgpu: Vgpu) -> bool:
    """Report whether an object could request the vGPU's type: only then can the vGPU be adopted."""
    table = physical_gpu.table
    return table is not None and vgpu.type_id in table.by_id


def is_of_type(physical_gpu: PhysicalGpu, type_name: str, vgpu: Vgpu) -> bool:
    """Report whether a vGPU has the type of that name."""
    kind = type_by_name(physical_gpu.table, type_name)
    return type_name == vgpu.type or (isinstance(kind, VgpuType) and kind.id == vgpu.type_id)


def type_by_name(table: VgpuTable | None, type_name: str) -> VgpuType | RuleRefusal:
    """Return the type with a full or short name on this GPU."""
    return find_type(table, 0, type_name, table.name if table is not None else "this GPU")


def assign_vgpus(physical_gpu: PhysicalGpu) -> VgpuAssignment:
    """Decide about each virtual function by itself. Whether all of it fits together is decided later."""
    keep: dict[str, DesiredVgpu] = {}
    create: dict[str, DesiredVgpu] = {}
    verdicts: dict[str, ObjectVerdict] = {}
    for address in physical_gpu.addresses:
        found, vgpu = physical_gpu.vgpus.get(address), physical_gpu.live_vgpus.get(address)
        if vgpu is not None:
            stays, why = _review_existing(physical_gpu, found, vgpu)
            if stays:
                keep[address] = _kept_vgpu(vgpu)
            if stays and why is None and found is not None and found.spec.enabled:
                keep[address], why = _with_parameters(physical_gpu, found, vgpu)
        else:
            stays, why = False, None
        if not stays and why is None and found is not None and found.spec.enabled:
            desired = _desired_vgpu(physical_gpu, found, address)
            if isinstance(desired, ObjectVerdict):
                why = desired
            else:
                create[address] = desired
        if why is not None:
            verdicts[address] = why
    return VgpuAssignment(
        keep,
        create,
        verdicts,
        bool(create) and all(_existed_before(physical_gpu.vgpus[address], each) for address, each in create.items()),
    )


def _existed_before(found: VGPUDevice, desired: DesiredVgpu) -> bool:
    """Report whether the vGPU was lost in a reboot: its object still records it."""
    return found.status.uuid in {desired.uuid, str(desired.type_id)} - {""}


def _kept_vgpu(vgpu: Vgpu) -> DesiredVgpu:
    return DesiredVgpu(vgpu.type_id, vgpu.type, vgpu.function, vgpu.uuid, vgpu.placement)


def _with_parameters(
    physical_gpu: PhysicalGpu, found: VGPUDevice, vgpu: Vgpu
) -> tuple[DesiredVgpu, ObjectVerdict | None]:
    """Return a vGPU that stays, with the requested plugin parameters, and why it keeps its own.

    Other parameters mean that it is created again, under its UUID, so that no VM may have it open.
    """
    kept, parameters = _kept_vgpu(vgpu), _parameters(physical_gpu, found)
    if isinstance(parameters, ObjectVerdict):
        return kept, parameters
    if parameters is None or parameters == vgpu.parameters:
        return kept, None
    if vgpu.held:
        who = ", ".join(map(str, vgpu.holders))
        text = (
            f"{vgpu.type} should have plugin parameters {parameters or 'none'}, has {vgpu.parameters or 'none'}, and "
            f"is in use by {who}"
        )
        return kept, ObjectVerdict(HELD, text, "stop that VM; Aliquot then continues")
    return msgspec.structs.replace(kept, parameters=parameters), None


def _parameters(physical_gpu: PhysicalGpu, found: VGPUDevice) -> str | ObjectVerdict | None:
    kind = type_by_name(physical_gpu.table, found.spec.type_name)
    parameters = requested_parameters(found, kind if isinstance(kind, VgpuType) else None)
    if isinstance(parameters, RuleRefusal):
        return ObjectVerdict(reason_word(parameters.rule), parameters.message, correct_command(found.name))
    return parameters


def _review_existing(
    physical_gpu: PhysicalGpu, found: VGPUDevice | None, vgpu: Vgpu
) -> tuple[bool, ObjectVerdict | None]:
    """Report whether an existing vGPU stays, and what is wrong with it."""
    if found is None:
        return True, None
    may_go = (
        is_tracked_by(physical_gpu, found, vgpu) or found.metadata.annotations.get(UNTRACKED_ANNOTATION) == "delete"
    )
    name = f"vgpudevice {found.name}"
    if found.spec.enabled:
        if is_of_type(physical_gpu, found.spec.type_name, vgpu):
            return True, None
        if is_tracked_by(physical_gpu, found, vgpu):
            text = f"it carries {vgpu.type}, and another type was requested while it was enabled"
            return True, ObjectVerdict("TypeChanged", text, f"{_patch_command(name, False)}, then enable it again")
    if not may_go:
        return True, _untracked_verdict(found, vgpu)
    if vgpu.held:
        who = ", ".join(map(str, vgpu.holders))
        return True, ObjectVerdict("Held", f"{vgpu.type} is in use by {who}", "stop that VM")
    return False, None


def _untracked_verdict(found: VGPUDevice, vgpu: Vgpu) -> ObjectVerdict:
    text = f"{vgpu.type} on {vgpu.function} was not created through this object: it is left alone"
    step = (
        f"kubectl annotate vgpudevice {found.name} {UNTRACKED_ANNOTATION}=delete (or, to keep it, enable the object "
        f"with vGPUTypeName {vgpu.type!r})"
    )
    return ObjectVerdict("Untracked", text, step)


def _patch_command(what: str, enabled: bool) -> str:
    word = "true" if enabled else "false"
    return f'kubectl patch {what} --type merge -p \'{{"spec":{{"enabled":{word}}}}}\''


def _desired_vgpu(physical_gpu: PhysicalGpu, found: VGPUDevice, address: str) -> DesiredVgpu | ObjectVerdict:
    step = f"kubectl get vgpudevice {found.name} -o jsonpath='{{.status.availableTypes}}'"
    if not found.spec.type_name:
        return ObjectVerdict("NoType", "it is enabled without a vGPU type", step)
    kind = type_by_name(physical_gpu.table, found.spec.type_name)
    if isinstance(kind, RuleRefusal):
        return ObjectVerdict(reason_word(kind.rule), kind.message, step)
    parameters = _parameters(physical_gpu, found)
    if isinstance(parameters, ObjectVerdict):
        return parameters
    uuid_before, function = _previous_uuid(physical_gpu, found.status.uuid), address
    if physical_gpu.slots and physical_gpu.gpu is not None:
        uuid_before, function = uuid_before or slot_uuid(physical_gpu.gpu, address), physical_gpu.pci
    return DesiredVgpu(kind.id or 0, kind.name, function, uuid_before, parameters=parameters)


def _previous_uuid(physical_gpu: PhysicalGpu, text: str) -> str:
    """Return the UUID that the vGPU had before a reboot, by which VMs may know it."""
    try:
        previous = str(uuid.UUID(text))
    except ValueError:
        return ""
    return previous if all(v.uuid != previous for v in physical_gpu.live_vgpus.values()) else ""
