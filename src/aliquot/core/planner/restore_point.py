"""The desired state that reproduces the current inventory. Used for rollback."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from aliquot.core.model.actions import Action, Create, CreateCompute, CreateVgpu
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance, DesiredVgpu
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory, Vgpu
from aliquot.core.model.vgpu_scheduler import scheduler_of

VFIO = "vfio-pci"
"""The kernel driver that passes a whole PCI function through to a VM."""


def make_restore_point(inventory: Inventory, pcis: Collection[str], name: str = "the previous state") -> Desired:
    """Return a desired state with every instance of some GPUs at its placement, and every vGPU on its function.

    Compute instances keep their placements, unless the driver chooses them. vGPUs keep their UUIDs.
    """
    exact = inventory.places_compute_instances
    gpus = tuple(
        _restoring_gpu(g, exact) for g in inventory.gpus if g.pci in pcis and (g.mig.capable or g.virtual is not None)
    )
    return Desired(gpus=gpus, name=name)


def foreign_instances(before: Gpu, now: Gpu, actions: Collection[Action]) -> tuple[GpuInstance, ...]:
    """Return the GPU instances that are new and that none of ``actions`` created."""
    known = {(i.profile_id, i.placement) for i in before.instances}
    known |= {(a.profile_id, a.placement) for a in actions if isinstance(a, Create) and a.gpu == now.pci}
    return tuple(i for i in now.instances if (i.profile_id, i.placement) not in known)


def foreign_compute(
    before: GpuInstance, now: GpuInstance, actions: Iterable[CreateCompute]
) -> tuple[ComputeInstance, ...]:
    """Return the compute instances of a GPU instance that are new and that none of ``actions`` created."""
    known = {(c.profile_id, c.placement) for c in before.compute_instances}
    ours = {(a.profile_id, a.placement) for a in actions if a.instance == now.id}
    return tuple(
        c
        for c in now.compute_instances
        if (c.profile_id, c.placement) not in known | ours and (c.profile_id, None) not in ours
    )


def spare_foreign(restore_point: Desired, before: Inventory, now: Inventory, actions: Collection[Action]) -> Desired:
    """Return the previous state plus MIG instances and vGPUs that others have created since. Those are not ours to
    destroy.

    ``actions`` are the actions of the change to undo. A vGPU that it created has an ownership token; one that another
    process created in its place has none.
    """
    new = [(a.function, a.type_id, a.uuid) for a in actions if isinstance(a, CreateVgpu)]
    old = [(v.function, v.type_id, v.uuid) for g in before.gpus for v in g.vgpus]

    def foreign(vgpu: Vgpu) -> bool:
        slot = vgpu.function, vgpu.type_id
        ours = old + (new if vgpu.ownership_token else [])
        return not any((f, t) == slot and (not vgpu.uuid or u in ("", vgpu.uuid)) for f, t, u in ours)

    desired_gpus = []
    for desired_gpu in restore_point.gpus:
        gpu = next((g for g in now.gpus if g.pci == desired_gpu.pci), None)
        if gpu is None:
            desired_gpus.append(desired_gpu)
            continue
        if desired_gpu.instances is not None:
            was = before.gpu(desired_gpu.pci)
            inside = [a for a in actions if isinstance(a, CreateCompute) and a.gpu == gpu.pci]
            restored = [_with_foreign_compute(i, was, gpu, inside) for i in was.instances]
            added_instances = foreign_instances(was, gpu, actions)
            mig = True if added_instances else desired_gpu.mig
            instances = _as_requests((*restored, *added_instances), now.places_compute_instances)
            desired_gpu = msgspec.structs.replace(desired_gpu, mig=mig, instances=instances)
        others = tuple(_same_vgpu(v) for v in gpu.vgpus if foreign(v))
        if others and desired_gpu.vgpus is not None:
            vgpus = (*desired_gpu.vgpus, *others)
            desired_gpu = msgspec.structs.replace(desired_gpu, vgpus=vgpus, functions=desired_gpu.functions or None)
        desired_gpus.append(desired_gpu)
    return msgspec.structs.replace(restore_point, gpus=tuple(desired_gpus))


def _with_foreign_compute(was: GpuInstance, before: Gpu, now: Gpu, actions: Iterable[CreateCompute]) -> GpuInstance:
    """Return a GPU instance as it was, plus the compute instances that others have created in it since."""
    current = next((i for i in now.instances if (i.profile_id, i.placement) == (was.profile_id, was.placement)), None)
    others = () if current is None else foreign_compute(was, current, actions)
    return msgspec.structs.replace(was, compute_instances=(*was.compute_instances, *others))


def instance_requests(gpu: Gpu, exact: bool = True) -> tuple[DesiredInstance, ...]:
    """Return the existing GPU instances as requests, with the placements of compute instances if ``exact``."""
    return _as_requests(gpu.instances, exact)


def _as_requests(instances: Iterable[GpuInstance], exact: bool) -> tuple[DesiredInstance, ...]:
    return tuple(
        DesiredInstance(
            profile_id=i.profile_id,
            name=i.profile,
            start=i.place.start,
            compute=tuple(c.profile_id for c in i.compute_instances),
            compute_starts=tuple(c.place.start for c in i.compute_instances) if exact else None,
        )
        for i in instances
    )


def _same_vgpu(vgpu: Vgpu) -> DesiredVgpu:
    return DesiredVgpu(vgpu.type_id, vgpu.type, vgpu.function, vgpu.uuid, parameters=vgpu.parameters)


def _restoring_gpu(gpu: Gpu, exact: bool) -> DesiredGpu:
    return msgspec.structs.replace(_present_as_desired(gpu, exact), source="the journal", restoring=True)


def _present_as_desired(gpu: Gpu, exact: bool) -> DesiredGpu:
    if gpu.virtual is None:
        return DesiredGpu(pci=gpu.pci, mig=gpu.mig.enabled, instances=instance_requests(gpu, exact))
    virtual = gpu.virtual
    if gpu.passthrough:
        mig = virtual.was_mig if gpu.mig.capable else None
        off = False if virtual.total else None
        return DesiredGpu(gpu.pci, mig, instances=None, vgpus=(), functions=off, passthrough=True)
    return DesiredGpu(
        pci=gpu.pci,
        mig=gpu.mig.enabled if gpu.mig.capable else None,
        instances=instance_requests(gpu, exact),
        vgpus=tuple(map(_same_vgpu, gpu.vgpus)),
        functions=virtual.enabled if virtual.total else None,
        mixed_size=gpu.mixed_size if virtual.enabled else None,
        scheduler=scheduler_of(gpu) or None,
        passthrough=False,
        vfio_bound=tuple(f.pci for f in virtual.functions if f.driver == VFIO) if virtual.enabled else None,
    )
