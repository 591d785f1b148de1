"""What differs between two looks at a node, in sentences: for whoever watches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Holder, Inventory, Vgpu
from aliquot.core.rendering import mig_picture as pieces


class Change(msgspec.Struct, frozen=True):
    """One difference. ``gpu`` is the PCI address of the GPU that it is on, empty for the node itself."""

    gpu: str
    text: str


def changes(before: Inventory, after: Inventory) -> tuple[Change, ...]:
    """What came, went, or changed hands between two looks, GPU by GPU; nothing where they say the same."""
    found = [Change("", text) for text in _node(before, after)]
    former = {g.pci: g for g in before.gpus}
    for gpu in after.gpus:
        old = former.pop(gpu.pci, None)
        if old is None:
            found.append(Change(gpu.pci, f"{pieces.title(gpu)}: appeared"))
        else:
            found += [Change(gpu.pci, f"GPU {gpu.index} {gpu.pci}: {text}") for text in _gpu(old, gpu)]
    return (*found, *(Change(g.pci, f"{pieces.title(g)}: is gone") for g in former.values()))


def _node(before: Inventory, after: Inventory) -> Iterator[str]:
    if before.driver != after.driver:
        yield f"driver {before.driver or 'unknown'} became {after.driver or 'unknown'}"


def _gpu(old: Gpu, new: Gpu) -> Iterator[str]:
    if old.uuid != new.uuid:
        yield f"is another GPU now: {new.uuid} in the place of {old.uuid}"
    if old.lost != new.lost:
        yield "has fallen off the bus" if new.lost else "is back on the bus"
    if old.passthrough != new.passthrough:
        yield "handed out whole (passthrough)" if new.passthrough else "taken back from passthrough"
    if old.mig.current != new.mig.current:
        yield f"MIG {new.mig.current}"
    if old.mig.pending != new.mig.pending and new.mig.pending != new.mig.current:
        yield f"MIG {new.mig.pending} after a reset"
    yield from _instances(old.instances, new.instances)
    yield from _virtual(old, new)
    if old.holders != new.holders:
        yield f"the whole GPU {_hands(new.holders)}"


def _instances(old: Sequence[GpuInstance], new: Sequence[GpuInstance]) -> Iterator[str]:
    former = {_key(i): i for i in old}
    now = {_key(i) for i in new}
    for each in former.values():
        if _key(each) not in now:
            yield f"destroyed {_name(each)}"
    for each in new:
        known = former.get(_key(each))
        if known is None:
            yield f"created {_name(each)}" + (f", {_hands(each.holders)}" if each.holders else "")
            continue
        yield from _compute(known.compute_instances, each.compute_instances, _name(each))
        if (known.held, _everybody(known)) != (each.held, _everybody(each)):
            yield f"{_name(each)} {_hands(_everybody(each), each.held)}"


def _compute(old: Sequence[ComputeInstance], new: Sequence[ComputeInstance], inside: str) -> Iterator[str]:
    former, now = ({(c.id, c.profile_id, c.placement): c for c in some} for some in (old, new))
    for key in former.keys() - now.keys():
        yield f"destroyed compute instance {former[key].profile} in {inside}"
    for key, each in now.items():
        if key not in former:
            yield f"created compute instance {each.profile} in {inside}"


def _virtual(old: Gpu, new: Gpu) -> Iterator[str]:
    counts = [len(g.virtual.functions) if g.virtual else 0 for g in (old, new)]
    if counts[0] != counts[1]:
        yield f"{counts[1]} virtual functions on" if counts[1] else "virtual functions off"
    mixed = [g.virtual.mixed if g.virtual else None for g in (old, new)]
    if mixed[0] != mixed[1] and mixed[1] is not None:
        yield f"mixed-size mode {'on' if mixed[1] else 'off'}"
    former, now = ({(v.function, v.uuid, v.type_id): v for v in g.vgpus} for g in (old, new))
    for key, each in former.items():
        if key not in now:
            yield f"destroyed vGPU {_vgpu(each)}"
    for key, each in now.items():
        known = former.get(key)
        if known is None:
            yield f"created vGPU {_vgpu(each)}" + (f", {_hands(each.holders)}" if each.holders else "")
        elif known.holders != each.holders:
            yield f"vGPU {_vgpu(each)} {_hands(each.holders)}"


def _key(instance: GpuInstance) -> tuple[int, int, str]:
    return instance.id, instance.profile_id, instance.placement


def _name(instance: GpuInstance) -> str:
    return f"{instance.profile} at {instance.placement}"


def _vgpu(vgpu: Vgpu) -> str:
    return f"{vgpu.type} on {vgpu.function}"


def _everybody(instance: GpuInstance) -> tuple[Holder, ...]:
    inner = (h for c in instance.compute_instances for h in c.holders)
    return tuple(dict.fromkeys((*instance.holders, *inner)))


def _hands(holders: Sequence[Holder], held: bool = False) -> str:
    if holders:
        return f"held by {', '.join(map(str, holders))}"
    return "held" if held else "idle"
