"""The GPU instances that MIG-backed vGPUs use. NVML does not report these holders."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Gpu, GpuInstance, Holder, Vgpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

replace = msgspec.structs.replace


def with_vgpu_holders(gpu: Gpu, table: VgpuTable | None) -> Gpu:
    """Return the GPU with a holder on each instance that a vGPU uses, and with mixed-size mode where its vGPUs prove
    it: nvidia-smi does not show the mode of a GPU instance.
    """
    if not gpu.vgpus or not gpu.instances:
        return gpu
    types = {} if table is None else table.by_id
    instances = []
    for instance in gpu.instances:
        instance_vgpus = [v for v in gpu.vgpus if _may_use(v, instance, gpu, types.get(v.type_id))]
        holders = tuple(Holder("vgpu", v.function, v.type) for v in instance_vgpus)
        changed = replace(instance, holders=(*instance.holders, *holders), held=instance.held or bool(holders))
        sizes = {types[v.type_id].fb_mib for v in gpu.vgpus if v.gpu_instance == instance.id and v.type_id in types}
        if len(sizes) > 1:
            changed = replace(changed, mixed_size=True)
        instances.append(changed if holders else instance)
    return replace(gpu, instances=tuple(instances))


def _may_use(vgpu: Vgpu, instance: GpuInstance, gpu: Gpu, vgpu_type: VgpuType | None) -> bool:
    """Return whether a vGPU may use an instance. If neither the driver nor our record names its instance, every
    instance that fits it counts as held, so that none is destroyed by a guess. Old drivers report the instance only of
    running vGPUs.
    """
    if vgpu.gpu_instance is not None and gpu.instance(vgpu.gpu_instance) is not None:
        return vgpu.gpu_instance == instance.id
    return vgpu_type is None or (vgpu_type.mig_backed and vgpu_type.profile_id in (None, instance.profile_id))


def expected_instance(gpu: Gpu, vgpu_type: VgpuType | None, types: VgpuTable) -> int | None:
    """Return the GPU instance that the driver will choose for a new vGPU: the lowest id that fits (profile, no vGPU of
    another size, capacity left). None if it cannot be predicted, as in mixed-size mode.
    """
    if (
        any(i.mixed_size for i in gpu.instances)
        or vgpu_type is None
        or vgpu_type.profile_id is None
        or any(v.gpu_instance is None for v in gpu.vgpus)
    ):
        return None
    for instance in sorted(gpu.instances, key=lambda i: i.id):
        instance_types = [types.by_id.get(v.type_id) for v in gpu.vgpus if v.gpu_instance == instance.id]
        same_size = all(t is not None and t.fb_mib == vgpu_type.fb_mib for t in instance_types)
        if (
            instance.profile_id == vgpu_type.profile_id
            and same_size
            and len(instance_types) < max(vgpu_type.per_instance, 1)
        ):
            return instance.id
    return None
