"""The wish that asks for exactly what is: how to get back."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from aliquot.core.model.actions import Action, Create, CreateCompute, CreateVgpu
from aliquot.core.model.desired import Desired, GpuWish, InstanceWish, VgpuWish
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Inventory, Vgpu

VFIO = "vfio-pci"
"""The kernel driver through which a whole function is handed to a virtual machine."""


def former(inventory: Inventory, pcis: Collection[str], name: str = "the former state") -> Desired:
    """A wish that names every instance of some GPUs at its place, with its compute instances at theirs (anywhere in it
    where the driver chooses that itself), and every vGPU on its function under its UUID.
    """
    exact = inventory.places_compute_instances
    gpus = tuple(_wish(g, exact) for g in inventory.gpus if g.pci in pcis and (g.mig.capable or g.virtual is not None))
    return Desired(gpus=gpus, name=name)


def foreign_instances(before: Gpu, now: Gpu, made: Collection[Action]) -> tuple[GpuInstance, ...]:
    """Return the GPU instances that were not there before and that none of the actions ``made`` created."""
    known = {(i.profile_id, i.placement) for i in before.instances}
    known |= {(a.profile_id, a.placement) for a in made if isinstance(a, Create) and a.gpu == now.pci}
    return tuple(i for i in now.instances if (i.profile_id, i.placement) not in known)


def foreign_compute(was: GpuInstance, now: GpuInstance, made: Iterable[CreateCompute]) -> tuple[ComputeInstance, ...]:
    """Return the compute instances of a GPU instance that were not there before and that no action ``made`` created."""
    known = {(c.profile_id, c.placement) for c in was.compute_instances}
    ours = {(a.profile_id, a.placement) for a in made if a.instance == now.id}
    return tuple(
        c
        for c in now.compute_instances
        if (c.profile_id, c.placement) not in known | ours and (c.profile_id, None) not in ours
    )


def sparing(goal: Desired, before: Inventory, now: Inventory, made: Collection[Action]) -> Desired:
    """The former state, beside MIG instances and vGPUs that others have made since: they are not ours to destroy.
    ``made`` are the actions of the change that is undone; a vGPU that it made has a claim, and what came in its way
    has none.
    """
    new = [(a.function, a.type_id, a.uuid) for a in made if isinstance(a, CreateVgpu)]
    old = [(v.function, v.type_id, v.uuid) for g in before.gpus for v in g.vgpus]

    def foreign(vgpu: Vgpu) -> bool:
        here = vgpu.function, vgpu.type_id
        ours = old + (new if vgpu.claim else [])
        return not any((f, t) == here and (not vgpu.uuid or u in ("", vgpu.uuid)) for f, t, u in ours)

    wishes = []
    for wish in goal.gpus:
        gpu = next((g for g in now.gpus if g.pci == wish.pci), None)
        if gpu is None:
            wishes.append(wish)
            continue
        if wish.instances is not None:
            was = before.gpu(wish.pci)
            inside = [a for a in made if isinstance(a, CreateCompute) and a.gpu == gpu.pci]
            former = [_with_foreign_compute(i, was, gpu, inside) for i in was.instances]
            kept = foreign_instances(was, gpu, made)
            mig = True if kept else wish.mig
            instances = _as_wishes((*former, *kept), now.places_compute_instances)
            wish = msgspec.structs.replace(wish, mig=mig, instances=instances)
        others = tuple(VgpuWish(v.type_id, v.type, v.function, v.uuid) for v in gpu.vgpus if foreign(v))
        if others and wish.vgpus is not None:
            beside = (*wish.vgpus, *others)
            wish = msgspec.structs.replace(wish, vgpus=beside, functions=wish.functions or None)
        wishes.append(wish)
    return msgspec.structs.replace(goal, gpus=tuple(wishes))


def _with_foreign_compute(was: GpuInstance, before: Gpu, now: Gpu, made: Iterable[CreateCompute]) -> GpuInstance:
    """A GPU instance as it was, with the compute instances that others made in it since."""
    here = next((i for i in now.instances if (i.profile_id, i.placement) == (was.profile_id, was.placement)), None)
    others = () if here is None else foreign_compute(was, here, made)
    return msgspec.structs.replace(was, compute_instances=(*was.compute_instances, *others))


def instance_wishes(gpu: Gpu, exact: bool = True) -> tuple[InstanceWish, ...]:
    """The GPU instances that exist, as wishes; with their compute instances just where they are if ``exact``."""
    return _as_wishes(gpu.instances, exact)


def _as_wishes(instances: Iterable[GpuInstance], exact: bool) -> tuple[InstanceWish, ...]:
    return tuple(
        InstanceWish(
            profile_id=i.profile_id,
            name=i.profile,
            start=i.place.start,
            compute=tuple(c.profile_id for c in i.compute_instances),
            compute_starts=tuple(c.place.start for c in i.compute_instances) if exact else None,
        )
        for i in instances
    )


def _wish(gpu: Gpu, exact: bool) -> GpuWish:
    return msgspec.structs.replace(_as_it_is(gpu, exact), source="the journal", restoring=True)


def _as_it_is(gpu: Gpu, exact: bool) -> GpuWish:
    if gpu.virtual is None:
        return GpuWish(pci=gpu.pci, mig=gpu.mig.enabled, instances=instance_wishes(gpu, exact))
    virtual = gpu.virtual
    if gpu.passthrough:
        mig = virtual.was_mig if gpu.mig.capable else None
        off = False if virtual.total else None
        return GpuWish(gpu.pci, mig, instances=None, vgpus=(), functions=off, passthrough=True)
    return GpuWish(
        pci=gpu.pci,
        mig=gpu.mig.enabled if gpu.mig.capable else None,
        instances=instance_wishes(gpu, exact),
        vgpus=tuple(VgpuWish(v.type_id, v.type, v.function, v.uuid) for v in gpu.vgpus),
        functions=virtual.enabled if virtual.total else None,
        mixed=virtual.mixed if virtual.enabled else None,
        passthrough=False,
        bound=tuple(f.pci for f in virtual.functions if f.driver == VFIO) if virtual.enabled else None,
    )
