"""The meaning of vGPU actions: the part of ``step`` for virtual functions, vGPUs and passthrough."""

from __future__ import annotations

from typing import assert_never

import msgspec

from aliquot.core.model.actions import CreateVgpu, DestroyVgpu, SetFunctions, SetMixedSize, SetPassthrough, SetScheduler
from aliquot.core.model.inventory import (
    Gpu,
    GpuInstance,
    GpuVirtualization,
    Holder,
    Inventory,
    Mig,
    MigMode,
    Vgpu,
    VirtualFunction,
)
from aliquot.core.model.vgpu_scheduler import DEFAULT, FIXED, instances_to_switch, policy_of
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType
from aliquot.core.planner.restore_point import VFIO
from aliquot.core.planner.vgpu.mig_backed_search import instance_ids_by_vgpu
from aliquot.core.planner.vgpu.mixed_instances import instance_policy
from aliquot.core.planner.vgpu.placement_policies import (
    EqualSizePolicy,
    MixedSizePolicy,
    PlacedVgpu,
    PlacementPolicy,
    VgpuPlacement,
)

replace = msgspec.structs.replace
VgpuAction = SetFunctions | SetMixedSize | SetScheduler | CreateVgpu | DestroyVgpu | SetPassthrough


class StepRefusedError(Exception):
    """The action is not possible in this state. The message names the rule."""


def functions(gpu: Gpu) -> tuple[VirtualFunction, ...]:
    """Return the virtual functions that exist."""
    return gpu.virtual.functions if gpu.virtual else ()


def apply_action(inventory: Inventory, gpu: Gpu, action: VgpuAction) -> Gpu:
    """Return the GPU after the action. Raises StepRefusedError if it is not possible."""
    if gpu.virtual is None:
        raise StepRefusedError("NO_VGPU_DRIVER: the state of the kernel was not read")
    match action:
        case SetFunctions():
            return _set_functions(gpu, gpu.virtual, action.count)
        case SetMixedSize():
            return _set_mixed_size(inventory, gpu, gpu.virtual, action.on)
        case SetScheduler():
            return _set_scheduler(gpu, gpu.virtual, action.scheduler)
        case CreateVgpu():
            return _create(inventory, gpu, action)
        case DestroyVgpu():
            return _destroy(gpu, action)
        case SetPassthrough():
            if action.function:
                return _bind(gpu, gpu.virtual, action.function, action.on)
            return _pass_through(inventory, gpu, gpu.virtual) if action.on else _reclaim(inventory, gpu, gpu.virtual)
    assert_never(action)


def _set_functions(gpu: Gpu, virtual: GpuVirtualization, count: int) -> Gpu:
    """Enable or disable virtual functions. The driver forgets GPU instances, vGPUs, mixed-size mode and scheduler.

    The vGPU framework shows only with virtual functions enabled.
    """
    if gpu.holders or gpu.vgpus or any(i.held for i in gpu.instances) or any(f.holders for f in virtual.functions):
        raise StepRefusedError("FUNCTIONS_IN_USE: the GPU is in use")
    if count and virtual.functions:
        raise StepRefusedError("FUNCTIONS_IN_USE: disable the virtual functions before their number changes")
    if not 0 <= count <= virtual.total:
        raise StepRefusedError(f"NO_FUNCTION: the GPU has {virtual.total}")
    made = tuple(VirtualFunction(pci, n, "nvidia") for n, pci in enumerate(virtual.addresses[:count]))
    framework = (virtual.framework or "sriov-mdev") if count else ""
    scheduler = DEFAULT if count and not gpu.mig.enabled else ""
    after = replace(virtual, functions=made, framework=framework, mixed_size=False, scheduler=scheduler)
    return replace(gpu, instances=(), virtual=after)


def _set_mixed_size(inventory: Inventory, gpu: Gpu, virtual: GpuVirtualization, on: bool) -> Gpu:
    table = inventory.vgpu_table(gpu)
    if gpu.mig.enabled and table is not None and table.shares_instances:
        switched = {i.id for i in gpu.instances if bool(i.mixed_size) != on}
        if any(v.gpu_instance in switched for v in gpu.vgpus):
            raise StepRefusedError("IN_USE: vGPUs exist")
        if on and any(policy_of(i.scheduler or "") == FIXED for i in gpu.instances if i.id in switched):
            raise StepRefusedError("SCHEDULER: fixed-share needs vGPUs of one size")
        return replace(gpu, instances=tuple(replace(i, mixed_size=on) for i in gpu.instances))
    if not virtual.enabled or gpu.mig.enabled or table is None or not table.mixed_size:
        raise StepRefusedError("MIXED_SIZE: the GPU does not have this mode now")
    if gpu.vgpus:
        raise StepRefusedError("IN_USE: vGPUs exist")
    if on and policy_of(virtual.scheduler) == FIXED:
        raise StepRefusedError("SCHEDULER: fixed-share needs vGPUs of one size")
    return replace(gpu, virtual=replace(virtual, mixed_size=on))


def _set_scheduler(gpu: Gpu, virtual: GpuVirtualization, scheduler: str) -> Gpu:
    if gpu.mig.enabled and any(isinstance(i.scheduler, str) for i in gpu.instances):
        return _set_inside(gpu, scheduler)
    if gpu.mig.enabled or (virtual.total and not virtual.enabled):
        raise StepRefusedError("SCHEDULER: the GPU has no time-sliced vGPUs now")
    if gpu.vgpus:
        raise StepRefusedError("IN_USE: vGPUs exist")
    if virtual.mixed_size and policy_of(scheduler) == FIXED:
        raise StepRefusedError("SCHEDULER: fixed-share needs vGPUs of one size")
    return replace(gpu, virtual=replace(virtual, scheduler=scheduler))


def _set_inside(gpu: Gpu, scheduler: str) -> Gpu:
    """Set the scheduler of the GPU instances that have another one and no vGPU."""
    switched = instances_to_switch(gpu, scheduler) - {v.gpu_instance for v in gpu.vgpus}
    if policy_of(scheduler) == FIXED and any(i.mixed_size for i in gpu.instances if i.id in switched):
        raise StepRefusedError("SCHEDULER: fixed-share needs vGPUs of one size")
    instances = tuple(replace(i, scheduler=scheduler) if i.id in switched else i for i in gpu.instances)
    return replace(gpu, instances=instances)


def _create(inventory: Inventory, gpu: Gpu, action: CreateVgpu) -> Gpu:
    assert gpu.virtual is not None
    table = inventory.vgpu_table(gpu)
    vgpu_type = table.by_id.get(action.type_id) if table else None
    if table is None or vgpu_type is None:
        raise StepRefusedError("UNKNOWN_TYPE: no such vGPU type")
    function = next((f for f in functions(gpu) if f.pci == action.function), None)
    if gpu.virtual.total and (function is None or function.driver == VFIO or function.holders):
        raise StepRefusedError("NO_FUNCTION: not a virtual function that can have a vGPU")
    if not gpu.virtual.total and action.function != gpu.pci:
        raise StepRefusedError("NO_FUNCTION: vGPUs are mdevs of the GPU itself")
    if gpu.virtual.total and any(v.function == action.function for v in gpu.vgpus):
        raise StepRefusedError("IN_USE: the function has a vGPU")
    if any(v.uuid == action.uuid for v in gpu.vgpus):
        raise StepRefusedError("IN_USE: a vGPU has that UUID")
    placement = _driver_placement(inventory, gpu, table, vgpu_type)
    made = Vgpu(
        function=action.function,
        type_id=action.type_id,
        type=vgpu_type.name,
        uuid=action.uuid,
        gpu_instance=placement if vgpu_type.mig_backed else None,
        placement=placement if gpu.virtual.mixed_size else None,
        ownership_token=f"claim-{action.uuid}",
        parameters=action.parameters,
    )
    instances = gpu.instances
    if made.gpu_instance is not None:
        instances = tuple(_with_holder(i, made) if i.id == made.gpu_instance else i for i in instances)
    order = {pci: n for n, pci in enumerate(gpu.virtual.addresses)}
    vgpus = tuple(sorted((*gpu.vgpus, made), key=lambda v: (order.get(v.function, 0), v.uuid)))
    return replace(gpu, vgpus=vgpus, instances=instances)


def _driver_placement(inventory: Inventory, gpu: Gpu, table: VgpuTable, vgpu_type: VgpuType) -> VgpuPlacement:
    """Return where the driver places one more vGPU."""
    assert gpu.virtual is not None
    if vgpu_type.mig_backed != gpu.mig.enabled:
        raise StepRefusedError("MIG_TYPE: the type needs the other MIG mode")
    policy: PlacementPolicy
    placements: list[VgpuPlacement] = [v.placement for v in gpu.vgpus]
    if gpu.mig.enabled:
        family = inventory.family(gpu)
        instance_ids = instance_ids_by_vgpu(gpu, table, family)
        placements = [instance_ids.get(n) for n in range(len(gpu.vgpus))]
        profiles = {name: p.id for name, p in family.by_name.items()}
        profiles_by_id = [(i.id, i.profile_id) for i in gpu.instances]
        policy = instance_policy(table, profiles_by_id, profiles, mixed=bool(gpu.mixed_size))
    else:
        policy = MixedSizePolicy(table) if gpu.virtual.mixed_size else EqualSizePolicy()
    placed = [
        PlacedVgpu(table.by_id[v.type_id], s, v.placement)
        for v, s in zip(gpu.vgpus, placements, strict=True)
        if v.type_id in table.by_id
    ]
    found = policy.place(policy.initial_state(placed), vgpu_type)
    if found is None:
        raise StepRefusedError("NO_INSTANCE: no GPU instance takes it" if gpu.mig.enabled else "MAX_VGPUS: no space")
    return found[1]


def _with_holder(instance: GpuInstance, vgpu: Vgpu) -> GpuInstance:
    return replace(instance, held=True, holders=(*instance.holders, Holder("vgpu", vgpu.function, vgpu.type)))


def _destroy(gpu: Gpu, action: DestroyVgpu) -> Gpu:
    identity = action.function, action.type_id, action.uuid, action.ownership_token
    found = [v for v in gpu.vgpus if (v.function, v.type_id, v.uuid, v.ownership_token) == identity]
    if not found:
        raise StepRefusedError("NOT_FOUND: no such vGPU (or another one now)")
    if found[0].holders:
        raise StepRefusedError("IN_USE: a VM has the vGPU")

    def without(instance: GpuInstance) -> GpuInstance:
        rest = tuple(h for h in instance.holders if (h.kind, h.id) != ("vgpu", action.function))
        held = bool(rest) or (instance.held and not instance.holders)
        return replace(instance, holders=rest, held=held)

    instances = tuple(without(i) for i in gpu.instances)
    return replace(gpu, vgpus=tuple(v for v in gpu.vgpus if v is not found[0]), instances=instances)


def _bind(gpu: Gpu, virtual: GpuVirtualization, pci: str, on: bool) -> Gpu:
    found = next((f for f in virtual.functions if f.pci == pci), None)
    if found is None:
        raise StepRefusedError("NO_FUNCTION: no such virtual function")
    if on and virtual.framework == "vendor-vfio":
        raise StepRefusedError("NO_FUNCTION: vfio-pci does not take virtual functions of vendor-specific VFIO")
    if found.holders or any(v.function == pci for v in gpu.vgpus):
        raise StepRefusedError("FUNCTIONS_IN_USE: the virtual function is in use")
    after = replace(found, driver=VFIO if on else "nvidia")
    made = tuple(after if f.pci == pci else f for f in virtual.functions)
    return replace(gpu, virtual=replace(virtual, functions=made))


def _pass_through(inventory: Inventory, gpu: Gpu, virtual: GpuVirtualization) -> Gpu:
    if inventory.host is None or not inventory.host.iommu:
        raise StepRefusedError("NO_IOMMU: passthrough needs an IOMMU")
    if gpu.passthrough or gpu.holders or gpu.vgpus or virtual.functions or any(i.held for i in gpu.instances):
        raise StepRefusedError("FUNCTIONS_IN_USE: the GPU is in use")
    after = replace(virtual, driver=VFIO, was_mig=gpu.mig.enabled, mixed_size=None, scheduler="")
    return replace(gpu, passthrough=True, instances=(), mig=Mig(gpu.mig.capable), virtual=after)


def _reclaim(inventory: Inventory, gpu: Gpu, virtual: GpuVirtualization) -> Gpu:
    if not gpu.passthrough or gpu.holders:
        raise StepRefusedError("IN_USE: a VM has the GPU" if gpu.holders else "NOT_FOUND: it is not passed through")
    keeps = gpu.mig.capable and inventory.family(gpu).mode.mode_survives_reboot
    mode: MigMode = "enabled" if virtual.was_mig and keeps else "disabled"
    after = replace(virtual, driver="nvidia", was_mig=False, mixed_size=False)
    return replace(gpu, passthrough=False, mig=Mig(gpu.mig.capable, mode, mode), virtual=after)
