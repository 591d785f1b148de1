"""Which GPU instance a MIG-backed vGPU lies on: the holder that NVML does not know of."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Gpu, GpuInstance, Holder, Vgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

replace = msgspec.structs.replace
VGPU = "vgpu"


def with_vgpus(gpu: Gpu, table: VgpuTable | None) -> Gpu:
    """The GPU with a holder on each instance that a vGPU lies on."""
    if not gpu.vgpus or not gpu.instances:
        return gpu
    types = {} if table is None else table.by_id
    instances = []
    for instance in gpu.instances:
        on = [v for v in gpu.vgpus if _may_lie_on(v, instance, gpu, types.get(v.type_id))]
        holders = tuple(Holder(VGPU, v.function, v.type) for v in on)
        changed = replace(instance, holders=(*instance.holders, *holders), held=instance.held or bool(holders))
        instances.append(changed if holders else instance)
    return replace(gpu, instances=tuple(instances))


def _may_lie_on(vgpu: Vgpu, instance: GpuInstance, gpu: Gpu, kind: VgpuType | None) -> bool:
    """Whether it lies there. Where neither the driver nor our record says on which (old drivers tell it of running
    ones only), every instance that fits it counts as held: none of them may be destroyed by guess.
    """
    if vgpu.gpu_instance is not None and gpu.instance(vgpu.gpu_instance) is not None:
        return vgpu.gpu_instance == instance.id
    return kind is None or (kind.mig_backed and kind.profile_id in (None, instance.profile_id))


def chosen(gpu: Gpu, kind: VgpuType | None, types: VgpuTable) -> int | None:
    """The GPU instance that the driver will take for a new vGPU: the lowest id that fits (profile, no vGPU of another
    size, fewer than its share). None where that cannot be told.
    """
    if kind is None or kind.profile_id is None or any(v.gpu_instance is None for v in gpu.vgpus):
        return None
    for instance in sorted(gpu.instances, key=lambda i: i.id):
        on = [types.by_id.get(v.type_id) for v in gpu.vgpus if v.gpu_instance == instance.id]
        same_size = all(t is not None and t.fb_mib == kind.fb_mib for t in on)
        if instance.profile_id == kind.profile_id and same_size and len(on) < max(kind.per_instance, 1):
            return instance.id
    return None
