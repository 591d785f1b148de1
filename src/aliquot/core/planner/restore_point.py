"""The wish that asks for exactly what is: how to get back."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from aliquot.core.model.actions import CreateVgpu
from aliquot.core.model.desired import Desired, GpuWish, InstanceWish, VgpuWish
from aliquot.core.model.inventory import Gpu, Inventory, Vgpu

VFIO = "vfio-pci"
"""The kernel driver through which a whole function is handed to a virtual machine."""


def former(inventory: Inventory, pcis: Collection[str], name: str = "the former state") -> Desired:
    """A wish that names every instance of some GPUs at its place, with its compute instances at theirs, and every vGPU
    on its function under its UUID.
    """
    gpus = tuple(_wish(g) for g in inventory.gpus if g.pci in pcis and (g.mig.capable or g.virtual is not None))
    return Desired(gpus=gpus, name=name)


def sparing(goal: Desired, before: Inventory, now: Inventory, made: Collection[CreateVgpu]) -> Desired:
    """The former state, beside vGPUs that others have made since: they are not ours to destroy. ``made`` are the
    creations of the change that is undone; what it made has a claim, and what came in its way has none.
    """
    new = [(a.function, a.type_id, a.uuid) for a in made]
    old = [(v.function, v.type_id, v.uuid) for g in before.gpus for v in g.vgpus]

    def foreign(vgpu: Vgpu) -> bool:
        here = vgpu.function, vgpu.type_id
        ours = old + (new if vgpu.claim else [])
        return not any((f, t) == here and (not vgpu.uuid or u in ("", vgpu.uuid)) for f, t, u in ours)

    wishes = []
    for wish in goal.gpus:
        there = next((g.vgpus for g in now.gpus if g.pci == wish.pci), ())
        others = tuple(VgpuWish(v.type_id, v.type, v.function, v.uuid) for v in there if foreign(v))
        if others and wish.vgpus is not None:
            beside = (*wish.vgpus, *others)
            wish = msgspec.structs.replace(wish, vgpus=beside, functions=wish.functions or None)
        wishes.append(wish)
    return msgspec.structs.replace(goal, gpus=tuple(wishes))


def instance_wishes(gpu: Gpu) -> tuple[InstanceWish, ...]:
    """The GPU instances that exist, as wishes."""
    return tuple(
        InstanceWish(
            profile_id=i.profile_id,
            name=i.profile,
            start=i.place.start,
            compute=tuple(c.profile_id for c in i.compute_instances),
            compute_starts=tuple(c.place.start for c in i.compute_instances),
        )
        for i in gpu.instances
    )


def _wish(gpu: Gpu) -> GpuWish:
    source = "the journal"
    if gpu.virtual is None:
        return GpuWish(pci=gpu.pci, mig=gpu.mig.enabled, instances=instance_wishes(gpu), source=source)
    virtual = gpu.virtual
    if gpu.passthrough:
        mig = virtual.was_mig if gpu.mig.capable else None
        off = False if virtual.total else None
        return GpuWish(gpu.pci, mig, instances=None, source=source, vgpus=(), functions=off, passthrough=True)
    return GpuWish(
        pci=gpu.pci,
        mig=gpu.mig.enabled if gpu.mig.capable else None,
        instances=instance_wishes(gpu),
        source=source,
        vgpus=tuple(VgpuWish(v.type_id, v.type, v.function, v.uuid) for v in gpu.vgpus),
        functions=virtual.enabled if virtual.total else None,
        mixed=virtual.mixed if virtual.enabled else None,
        passthrough=False,
        bound=tuple(f.pci for f in virtual.functions if f.driver == VFIO) if virtual.enabled else None,
    )
