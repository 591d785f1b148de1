"""Pictures of GPUs as bars: blocks in percent of the width, their labels, and a text alternative.

Templates draw them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.planner.fragmentation import Fragmentation
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.core.rendering.mig_picture import DrawnInstance
from aliquot.core.rendering.vgpu_picture import DrawnVgpu
from aliquot.dashboard import formatting as words
from aliquot.dashboard.view_models import GpuPicture

HELD, IDLE, FRESH, FREE, BROKEN = "held", "idle", "fresh", "free", "broken"
HOLE, WHOLE, LOST = "hole", "whole", "lost"
"""Kinds of blocks. ``broken`` is fragmented free memory: more instances would fit if idle instances moved.
``hole`` is free memory that fits no instance. ``fresh`` is created by a plan. ``whole`` is an unpartitioned GPU.
"""
_GAPS = {
    FREE: ("free", "", "free"),
    BROKEN: ("hole", "in pieces", "a hole (fragmented free memory): more would fit if idle instances moved"),
    HOLE: ("left over", "", "free, but nothing fits here"),
}
"""By kind of free memory: its label, the note below it and its tooltip."""
_MOST_TICKS = 16


class BarBlock(msgspec.Struct, frozen=True):
    """A rectangle, with ``x`` and ``width`` in percent. It shows ``letter``, ``label`` and ``note``.

    ``title`` is the tooltip. A ``narrow`` block has little space for text. An ``odd`` one should not exist.
    """

    x: float
    width: float
    kind: str
    letter: str = ""
    label: str = ""
    note: str = ""
    title: str = ""
    narrow: bool = False
    odd: bool = False


class Tick(msgspec.Struct, frozen=True):
    """A number above the bar: the middle of a slice, or a position in GiB."""

    x: float
    text: str


class GpuBar(msgspec.Struct, frozen=True):
    """The bar of one GPU. ``sentence`` is the text alternative, and ``unit`` is the unit of the ticks.

    ``marks`` below the blocks show where an instance would be or should be placed.
    """

    name: str
    sentence: str
    unit: str = ""
    blocks: tuple[BarBlock, ...] = ()
    ticks: tuple[Tick, ...] = ()
    marks: tuple[BarBlock, ...] = ()


class FreeMemory(msgspec.Struct, frozen=True):
    """Free memory slices. ``stranded`` ones fit no ``wanted`` profile ("" for any).

    The others are ``broken`` if more instances would fit after idle instances moved.
    """

    stranded: Collection[int] = ()
    broken: bool = False
    wanted: str = ""


_EVEN = FreeMemory()


def gaps(found: Fragmentation | None) -> FreeMemory:
    """Convert a fragmentation for drawing."""
    return FreeMemory(found.stranded, bool(found.lost)) if found else _EVEN


def instances(
    name: str,
    count: int,
    shown: Sequence[DrawnInstance],
    *,
    gaps: FreeMemory = _EVEN,
    states: dict[str, str] | None = None,
    odd: Collection[str] = (),
) -> GpuBar:
    """Draw a GPU of ``count`` memory slices.

    ``states`` describe instances by letter (``held by process 4711``).
    ``odd`` are the letters of instances that should not exist.
    """
    known = states or {}
    cell = 100 / count
    taken = {n for p in shown for n in range(p.place.start, p.place.start + p.place.size)}
    blocks = [_instance_block(p, cell, known.get(p.letter, ""), p.letter in odd) for p in shown]
    left = sorted(set(gaps.stranded) - taken)
    blocks += [_stranded(_free(run, cell, HOLE), gaps) for run in _runs(left)]
    free = sorted(set(range(count)) - taken - set(left))
    blocks += [_free(run, cell, BROKEN if gaps.broken else FREE) for run in _runs(free)]
    ticks = tuple(Tick(_round((n + 0.5) * cell), str(n)) for n in range(count))
    parts = [f"{p.profile} on {words.place(p.place)}, {known.get(p.letter) or _word(p)}" for p in shown]
    parts += [f"{words.slices(free)} free{', in pieces' if gaps.broken else ''}"] if free else []
    parts += [f"{words.slices(left)} free, but nothing fits there"] if left else []
    return GpuBar(name, "; ".join(parts) + ".", "memory slice", tuple(sorted(blocks, key=lambda block: block.x)), ticks)


def _instance_block(instance: DrawnInstance, cell: float, state: str, odd: bool) -> BarBlock:
    kind = FRESH if instance.fresh else HELD if instance.held else IDLE
    title = f"{instance.letter}: {instance.profile} on {words.place(instance.place)}, {state or _word(instance)}"
    return BarBlock(
        x=_round(instance.place.start * cell),
        width=_round(instance.place.size * cell),
        kind=kind,
        letter=instance.letter,
        label=words.clean(instance.profile, 24),
        note=_word(instance),
        title=title + ("; it should not be there" if odd else ""),
        narrow=instance.place.size * cell < 18,
        odd=odd,
    )


def _free(run: Sequence[int], cell: float, kind: str) -> BarBlock:
    label, note, why = _GAPS[kind]
    narrow = len(run) * cell < 18
    title = f"{words.slices(run)}: {why}"
    return BarBlock(_round(run[0] * cell), _round(len(run) * cell), kind, "", label, note, title, narrow)


def _stranded(block: BarBlock, gaps: FreeMemory) -> BarBlock:
    """Label a free block that fits nothing wanted. It is a hole if moving idle instances would close it."""
    if gaps.wanted:
        return msgspec.structs.replace(block, label=f"no {gaps.wanted}")
    return msgspec.structs.replace(block, label=_GAPS[BROKEN][0]) if gaps.broken else block


def _word(item: DrawnInstance | DrawnVgpu) -> str:
    return "new" if item.fresh else "held" if item.held else "idle"


def _runs(numbers: Sequence[int]) -> list[list[int]]:
    runs: list[list[int]] = []
    for n in numbers:
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return runs


def _round(value: float) -> float:
    return round(value, 3)


def marks(count: int, places: Sequence[Placement], kind: str, label: str) -> tuple[BarBlock, ...]:
    """Build the marks below a bar of ``count`` memory slices."""
    cell = 100 / count
    return tuple(
        BarBlock(_round(p.start * cell), _round(p.size * cell), kind, "", label, "", f"{label}: {words.place(p)}")
        for p in places
    )


def memory(name: str, region: int, shown: Sequence[DrawnVgpu]) -> GpuBar:
    """Draw the vGPUs of a GPU over its ``region`` GiB of memory. vGPUs without a placement are drawn side by side."""
    blocks: list[BarBlock] = []
    free = 0
    taken: set[int] = set()
    for share in shown:
        start = free if share.start is None else share.start
        free = max(free, start + share.size)
        end = min(start + share.size, region)
        if end <= start:
            continue
        taken |= set(range(start, end))
        blocks.append(_share(share, start, end, region))
    cell = 100 / region
    blocks += [
        BarBlock(
            _round(r[0] * cell), _round(len(r) * cell), FREE, "", FREE, "", f"{len(r)} GiB free", len(r) * cell < 18
        )
        for r in _runs(sorted(set(range(region)) - taken))
    ]
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64) if region / s <= _MOST_TICKS or s == 64)
    ticks = tuple(Tick(_round(n * cell), str(n) if n else "0 GiB") for n in range(0, region, step))
    parts = [f"{s.name}, {s.size} GiB, {_word(s)}" for s in shown]
    parts += [f"{region - len(taken)} of {region} GiB free"]
    return GpuBar(name, "; ".join(parts) + ".", "GiB", tuple(sorted(blocks, key=lambda block: block.x)), ticks)


def _share(share: DrawnVgpu, start: int, end: int, region: int) -> BarBlock:
    cell = 100 / region
    kind = FRESH if share.fresh else HELD if share.held else IDLE
    title = f"{share.letter}: {share.name}, {share.size} GiB, {_word(share)}"
    width = (end - start) * cell
    label = words.clean(share.name, 24)
    return BarBlock(_round(start * cell), _round(width), kind, share.letter, label, _word(share), title, width < 18)


def whole(gpu: Gpu, name: str) -> GpuBar:
    """Draw a GPU that is not partitioned."""
    if gpu.lost:
        kind, label, note = LOST, "lost", "fallen off the bus"
    elif gpu.passthrough:
        kind, label, note = HELD, "whole GPU", "passed through to a VM"
    elif gpu.holders:
        kind, label, note = HELD, "whole GPU", f"held by {words.clean(', '.join(map(str, gpu.holders)), 60)}"
    else:
        kind, label = WHOLE, "whole GPU"
        note = "not partitioned" if gpu.mig.capable else "does not support MIG"
    return GpuBar(name, f"{label}, {note}.", "", (BarBlock(0, 100, kind, "", label, note, f"{label}, {note}"),))


def of_gpu(inventory: Inventory, gpu: Gpu, found: Fragmentation | None, *, odd: Collection[str] = ()) -> GpuBar:
    """Draw the current GPU: its instances, or its vGPUs over its memory, or the whole GPU."""
    name = f"{words.gpu_name(gpu)}, {words.product(gpu)}"
    if gpu.lost or gpu.passthrough:
        return whole(gpu, name)
    if gpu.mig.enabled and gpu.family:
        shown = mig_picture.current_instances(gpu)
        ordered = sorted(gpu.instances, key=lambda i: i.place.start)
        states = {p.letter: words.state(i) for p, i in zip(shown, ordered, strict=True)}
        count = inventory.family(gpu).memory_slices
        return instances(name, count, shown, gaps=gaps(found), states=states, odd=odd)
    table = inventory.vgpu_table(gpu)
    shared = shares.current_vgpus(gpu, table)
    if shared and table is not None and shares.drawable(gpu, table, shared):
        return memory(name, table.region, shared)
    return whole(gpu, name)


def of_plan(picture: GpuPicture, labels: tuple[str, str] = ("now", "planned")) -> tuple[GpuBar, GpuBar] | None:
    """Draw a GPU before and after a plan, named by ``labels``. Return None if there is only text."""
    before, after = (f"{words.clean(picture.title)}, {word}" for word in labels)
    if picture.slices:
        return (
            instances(before, picture.slices, picture.before),
            instances(after, picture.slices, picture.after),
        )
    if picture.region:
        return (
            memory(before, picture.region, picture.shares_before),
            memory(after, picture.region, picture.shares_after),
        )
    return None
