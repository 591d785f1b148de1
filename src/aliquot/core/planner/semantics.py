"""The meaning of each action: ``step(inventory, action)`` returns the next inventory, or refuses.

Tests compare this reference with the simulator and the raw tables. The engine does not use it: it reads the hardware
again.
"""

from __future__ import annotations

from collections import Counter
from typing import assert_never

import msgspec

from aliquot.core.model.actions import (
    Action,
    ComputePart,
    Create,
    CreateCompute,
    CreateVgpu,
    Destroy,
    DestroyCompute,
    DestroyVgpu,
    Reset,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
    SetScheduler,
)
from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.instance_ids import instance_id as instance_id
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.planner import rules
from aliquot.core.planner.compute_instances import driver_choice
from aliquot.core.planner.placement_table import compiled_table
from aliquot.core.planner.vgpu import semantics as steps
from aliquot.core.planner.vgpu.instance_scheduler import new_scheduler
from aliquot.core.planner.vgpu.semantics import StepRefusedError as StepRefusedError

replace = msgspec.structs.replace


def step(inventory: Inventory, action: Action) -> Inventory:
    """Return the inventory after one action. Raises StepRefusedError if the rules forbid it."""
    gpu = inventory.gpu(action.gpu)
    if gpu.passthrough and not isinstance(action, SetPassthrough):
        raise StepRefusedError("PASSTHROUGH: the GPU is passed through")
    if isinstance(action, SetFunctions | SetMixedSize | SetScheduler | CreateVgpu | DestroyVgpu | SetPassthrough):
        after = steps.apply_action(inventory, gpu, action)
    else:
        after = _apply_action(inventory.family(gpu), gpu, action)
        if isinstance(action, Create):
            after = _with_scheduler(inventory, after, action)
    return replace(inventory, gpus=tuple(after if g.pci == gpu.pci else g for g in inventory.gpus))


def _apply_action(
    family: Family, gpu: Gpu, action: SetMode | Reset | Create | Destroy | CreateCompute | DestroyCompute
) -> Gpu:
    match action:
        case SetMode():
            return _set_mode(family, gpu, action.mode)
        case Reset():
            if gpu.holders or any(i.held for i in gpu.instances) or steps.functions(gpu):
                raise StepRefusedError("IN_USE: a client is on the GPU")
            return replace(gpu, mig=replace(gpu.mig, current=gpu.mig.pending), instances=())
        case Create():
            return _create(family, gpu, action)
        case Destroy():
            instance = _instance(gpu, action.instance)
            if instance.held:
                raise StepRefusedError("IN_USE: the instance is held")
            return replace(gpu, instances=tuple(i for i in gpu.instances if i.id != instance.id))
        case CreateCompute():
            instance = _instance(gpu, action.instance)
            part = ComputePart(action.profile, action.profile_id, action.placement)
            return _with_instance(gpu, _add_compute(family.by_id[instance.profile_id], instance, part))
        case DestroyCompute():
            return _destroy_compute(gpu, action)
    assert_never(action)


def _set_mode(family: Family, gpu: Gpu, mode: str) -> Gpu:
    if mode == "disabled" and gpu.instances:
        raise StepRefusedError("IN_USE: instances exist")
    if gpu.vgpus or (mode == "disabled" and steps.functions(gpu)):
        raise StepRefusedError("IN_USE: virtual functions exist")
    if mode == "enabled" and gpu.virtual is not None:  # no time is shared between GPU instances
        gpu = replace(gpu, virtual=replace(gpu.virtual, scheduler=""))
    current = gpu.mig.current if family.mode.change_needs_gpu_reset else mode
    return replace(gpu, mig=replace(gpu.mig, current=current, pending=mode))


def _with_scheduler(inventory: Inventory, gpu: Gpu, made: Create) -> Gpu:
    """Return the GPU with the scheduler that a GPU instance has from its creation on."""
    scheduler, place = new_scheduler(inventory, gpu, made.profile_id), made.placement
    return replace(
        gpu, instances=tuple(replace(i, scheduler=scheduler) if i.placement == place else i for i in gpu.instances)
    )


def _create(family: Family, gpu: Gpu, action: Create) -> Gpu:
    if not gpu.mig.enabled:
        raise StepRefusedError("NOT_SUPPORTED: MIG mode is off")
    table = compiled_table(family)
    place = Placement.parse(action.placement)
    profile = table.profiles.get(action.profile_id)
    if profile is None or place not in profile.placements:
        raise StepRefusedError("PLACEMENT: not a placement of this profile")
    counts = Counter(i.profile_id for i in gpu.instances) + Counter([profile.id])
    refusal = next(rules.refusals(table, counts), None)
    if refusal is not None:
        raise StepRefusedError(f"{refusal.rule}: {refusal.message}")
    if any(i.place.mask & place.mask for i in gpu.instances):
        raise StepRefusedError("PLACEMENT: the slices are taken")
    made = GpuInstance(
        id=instance_id(family, place, bool(gpu.slots_mirrored), [i.id for i in gpu.instances]),
        profile=profile.name,
        profile_id=profile.id,
        placement=action.placement,
        mixed_size=False if gpu.virtual is not None and gpu.shares_instances else msgspec.UNSET,
    )
    for part in action.compute:
        made = _add_compute(profile, made, part)
    return replace(gpu, instances=tuple(sorted((*gpu.instances, made), key=lambda i: i.id)))


def _add_compute(profile: Profile, instance: GpuInstance, part: ComputePart) -> GpuInstance:
    ci = profile.compute_profile(part.profile_id)
    if ci is None:
        raise StepRefusedError("UNKNOWN_PROFILE: no such compute instance profile")
    taken = 0
    for other in instance.compute_instances:
        taken |= other.place.mask
    place = Placement.parse(part.placement) if part.placement else driver_choice(profile, ci, taken)
    if place is None or place not in ci.placements or place.mask & taken:
        raise StepRefusedError("PLACEMENT: no free compute slots")
    used = {c.id for c in instance.compute_instances}
    lowest = next(n for n in range(profile.compute_slices + 1) if n not in used)
    made = ComputeInstance(id=lowest, profile=ci.name, profile_id=ci.id, placement=str(place))
    return replace(instance, compute_instances=(*instance.compute_instances, made))


def _destroy_compute(gpu: Gpu, action: DestroyCompute) -> Gpu:
    instance = _instance(gpu, action.instance)
    gone = [c for c in instance.compute_instances if c.id == action.compute_instance]
    if not gone:
        raise StepRefusedError("NOT_FOUND: no such compute instance")
    if gone[0].holders:
        raise StepRefusedError("IN_USE: the compute instance is held")
    rest = tuple(c for c in instance.compute_instances if c.id != action.compute_instance)
    return _with_instance(gpu, replace(instance, compute_instances=rest))


def _instance(gpu: Gpu, instance_id: int) -> GpuInstance:
    found = gpu.instance(instance_id)
    if found is None:
        raise StepRefusedError("NOT_FOUND: no such GPU instance")
    return found


def _with_instance(gpu: Gpu, instance: GpuInstance) -> Gpu:
    return replace(gpu, instances=tuple(instance if i.id == instance.id else i for i in gpu.instances))
