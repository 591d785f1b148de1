"""The differences between two inventories of a node, in sentences for the watch views."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Holder, Inventory, Vgpu
from aliquot.core.rendering import mig_picture


class InventoryChange(msgspec.Struct, frozen=True):
    """A difference. ``gpu`` is the PCI address of its GPU, empty for the node itself."""

    gpu: str
    text: str


def changes(before: Inventory, after: Inventory) -> tuple[InventoryChange, ...]:
    """Return what was created, destroyed or got other holders between two inventories, GPU by GPU."""
    found = [InventoryChange("", text) for text in _node(before, after)]
    previous = {g.pci: g for g in before.gpus}
    for gpu in after.gpus:
        old = previous.pop(gpu.pci, None)
        if old is None:
            found.append(InventoryChange(gpu.pci, f"{mig_picture.title(gpu)}: appeared"))
        else:
            found += [InventoryChange(gpu.pci, f"GPU {gpu.index} {gpu.pci}: {text}") for text in _gpu(old, gpu)]
    return (*found, *(InventoryChange(g.pci, f"{mig_picture.title(g)}: is gone") for g in previous.values()))


def _node(before: Inventory, after: Inventory) -> Iterator[str]:
    if before.driver != after.driver:
        yield f"driver {before.driver or 'unknown'} became {after.driver or 'unknown'}"


def _gpu(old: Gpu, new: Gpu) -> Iterator[str]:
    if old.uuid != new.uuid:
        yield f"is another GPU now: {new.uuid} in the place of {old.uuid}"
    if old.lost != new.lost:
        yield "has fallen off the bus" if new.lost else "is back on the bus"
    if old.passthrough != new.passthrough:
        yield f"passthrough {'on' if new.passthrough else 'off'}"
    if old.mig.current != new.mig.current:
        yield f"MIG {new.mig.current}"
    if old.mig.pending != new.mig.pending and new.mig.pending != new.mig.current:
        yield f"MIG {new.mig.pending} after a reset"
    yield from _instances(old.instances, new.instances)
    yield from _virtual(old, new)
    if old.holders != new.holders:
        yield f"the whole GPU {_holders_text(new.holders)}"


def _instances(old: Sequence[GpuInstance], new: Sequence[GpuInstance]) -> Iterator[str]:
    previous = {_key(i): i for i in old}
    now = {_key(i) for i in new}
    for each in previous.values():
        if _key(each) not in now:
            yield f"destroyed {_name(each)}"
    for each in new:
        known = previous.get(_key(each))
        if known is None:
            yield f"created {_name(each)}" + (f", {_holders_text(each.holders)}" if each.holders else "")
            continue
        if known.scheduler and each.scheduler and known.scheduler != each.scheduler:
            yield f"{_name(each)} has scheduler {each.scheduler}"
        yield from _compute(known.compute_instances, each.compute_instances, _name(each))
        if (known.held, _all_holders(known)) != (each.held, _all_holders(each)):
            yield f"{_name(each)} {_holders_text(_all_holders(each), each.held)}"


def _compute(old: Sequence[ComputeInstance], new: Sequence[ComputeInstance], inside: str) -> Iterator[str]:
    previous, now = ({(c.id, c.profile_id, c.placement): c for c in some} for some in (old, new))
    for key in previous.keys() - now.keys():
        yield f"destroyed compute instance {previous[key].profile} in {inside}"
    for key, each in now.items():
        if key not in previous:
            yield f"created compute instance {each.profile} in {inside}"


def _virtual(old: Gpu, new: Gpu) -> Iterator[str]:
    counts = [len(g.virtual.functions) if g.virtual else 0 for g in (old, new)]
    if counts[0] != counts[1]:
        yield f"{counts[1]} virtual functions on" if counts[1] else "virtual functions off"
    mixed = [g.virtual.mixed_size if g.virtual else None for g in (old, new)]
    if mixed[0] != mixed[1] and mixed[1] is not None:
        yield f"mixed-size mode {'on' if mixed[1] else 'off'}"
    schedulers = [g.virtual.scheduler if g.virtual else "" for g in (old, new)]
    if all(schedulers) and schedulers[0] != schedulers[1]:
        yield f"scheduler {schedulers[1]}"
    previous, now = ({(v.function, v.uuid, v.type_id): v for v in g.vgpus} for g in (old, new))
    for key, each in previous.items():
        if key not in now:
            yield f"destroyed vGPU {_vgpu(each)}"
    for key, each in now.items():
        known = previous.get(key)
        if known is None:
            yield f"created vGPU {_vgpu(each)}" + (f", {_holders_text(each.holders)}" if each.holders else "")
        elif known.parameters != each.parameters:
            yield f"vGPU {_vgpu(each)} has plugin parameters {each.parameters or 'none'}"
        elif known.holders != each.holders:
            yield f"vGPU {_vgpu(each)} {_holders_text(each.holders)}"


def _key(instance: GpuInstance) -> tuple[int, int, str]:
    return instance.id, instance.profile_id, instance.placement


def _name(instance: GpuInstance) -> str:
    return f"{instance.profile} at {instance.placement}"


def _vgpu(vgpu: Vgpu) -> str:
    return f"{vgpu.type} on {vgpu.function}"


def _all_holders(instance: GpuInstance) -> tuple[Holder, ...]:
    inner = (h for c in instance.compute_instances for h in c.holders)
    return tuple(dict.fromkeys((*instance.holders, *inner)))


def _holders_text(holders: Sequence[Holder], held: bool = False) -> str:
    if holders:
        return f"held by {', '.join(map(str, holders))}"
    return "held" if held else "idle"
