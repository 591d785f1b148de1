"""Pictures of GPUs as geometry: what lies where, in per cent of the width, with the words that stand on it and the
sentence that says the same to who cannot see it. Templates draw them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.planner.fragmentation import Holes
from aliquot.core.rendering import mig_picture as pieces
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.core.rendering.mig_picture import Piece
from aliquot.core.rendering.vgpu_picture import Share
from aliquot.dashboard import formatting as words
from aliquot.dashboard.view_models import Picture

HELD, IDLE, FRESH, FREE, BROKEN = "held", "idle", "fresh", "free", "broken"
HOLE, WHOLE, LOST = "hole", "whole", "lost"
"""What a block is. ``broken``: a hole, free memory of which more could be had if idle instances moved; ``hole``: what
fits nothing as things lie; ``fresh``: a plan makes it; ``whole``: a GPU that is not divided."""
_GAPS = {
    FREE: ("free", "", "free"),
    BROKEN: ("hole", "in pieces", "a hole, free in pieces: if idle instances moved, more would fit"),
    HOLE: ("left over", "", "free, but nothing fits here"),
}
"""Of each kind of free memory what is written on it, and below that, and what is said of it when it is pointed at."""
_MOST_TICKS = 16


class Block(msgspec.Struct, frozen=True):
    """A rectangle from ``x`` on, both in per cent. ``letter`` and ``label`` are written on it, ``note`` below them,
    ``title`` when it is pointed at. ``narrow``: little room for words. ``odd``: it should not be there.
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
    """A number above the bar, at the middle of its slice (or at its GiB)."""

    x: float
    text: str


class Bar(msgspec.Struct, frozen=True):
    """One GPU. ``name`` says which, ``sentence`` what is to be seen; ``unit`` is what the ticks count. ``marks`` are
    what is pointed out below the blocks: where something would go, or should be.
    """

    name: str
    sentence: str
    unit: str = ""
    blocks: tuple[Block, ...] = ()
    ticks: tuple[Tick, ...] = ()
    marks: tuple[Block, ...] = ()


class Gaps(msgspec.Struct, frozen=True):
    """What is free: ``stranded`` memory slices fit nothing wanted; the others are ``broken`` where more would fit if
    idle instances moved. ``wanted`` is the profile that is looked for, "" for any.
    """

    stranded: Collection[int] = ()
    broken: bool = False
    wanted: str = ""


_EVEN = Gaps()


def gaps(found: Holes | None) -> Gaps:
    """As they are to be drawn."""
    return Gaps(found.stranded, bool(found.lost)) if found else _EVEN


def instances(
    name: str,
    count: int,
    shown: Sequence[Piece],
    *,
    gaps: Gaps = _EVEN,
    states: dict[str, str] | None = None,
    odd: Collection[str] = (),
) -> Bar:
    """A GPU of ``count`` memory slices. ``states`` are more about pieces, by letter (``held by process 4711``); ``odd``
    are the letters of those that should not be there.
    """
    known = states or {}
    cell = 100 / count
    taken = {n for p in shown for n in range(p.place.start, p.place.start + p.place.size)}
    blocks = [_piece(p, cell, known.get(p.letter, ""), p.letter in odd) for p in shown]
    left = sorted(set(gaps.stranded) - taken)
    blocks += [_stranded(_free(run, cell, HOLE), gaps) for run in _runs(left)]
    free = sorted(set(range(count)) - taken - set(left))
    blocks += [_free(run, cell, BROKEN if gaps.broken else FREE) for run in _runs(free)]
    ticks = tuple(Tick(_round((n + 0.5) * cell), str(n)) for n in range(count))
    said = [f"{p.profile} on {words.place(p.place)}, {known.get(p.letter) or _word(p)}" for p in shown]
    said += [f"{words.slices(free)} free{', in pieces' if gaps.broken else ''}"] if free else []
    said += [f"{words.slices(left)} free, but nothing fits there"] if left else []
    return Bar(name, "; ".join(said) + ".", "memory slice", tuple(sorted(blocks, key=lambda b: b.x)), ticks)


def _piece(piece: Piece, cell: float, state: str, odd: bool) -> Block:
    kind = FRESH if piece.fresh else HELD if piece.held else IDLE
    title = f"{piece.letter}: {piece.profile} on {words.place(piece.place)}, {state or _word(piece)}"
    return Block(
        x=_round(piece.place.start * cell),
        width=_round(piece.place.size * cell),
        kind=kind,
        letter=piece.letter,
        label=words.clean(piece.profile, 24),
        note=_word(piece),
        title=title + ("; it should not be there" if odd else ""),
        narrow=piece.place.size * cell < 18,
        odd=odd,
    )


def _free(run: Sequence[int], cell: float, kind: str) -> Block:
    label, note, why = _GAPS[kind]
    narrow = len(run) * cell < 18
    title = f"{words.slices(run)}: {why}"
    return Block(_round(run[0] * cell), _round(len(run) * cell), kind, "", label, note, title, narrow)


def _stranded(block: Block, gaps: Gaps) -> Block:
    """As everywhere: a hole is what moving would close."""
    if gaps.wanted:
        return msgspec.structs.replace(block, label=f"no {gaps.wanted}")
    return msgspec.structs.replace(block, label=_GAPS[BROKEN][0]) if gaps.broken else block


def _word(piece: Piece | Share) -> str:
    return "new" if piece.fresh else "held" if piece.held else "idle"


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


def spots(count: int, places: Sequence[Placement], kind: str, label: str) -> tuple[Block, ...]:
    """Marks below a bar of ``count`` memory slices."""
    cell = 100 / count
    return tuple(
        Block(_round(p.start * cell), _round(p.size * cell), kind, "", label, "", f"{label}: {words.place(p)}")
        for p in places
    )


def memory(name: str, region: int, shown: Sequence[Share]) -> Bar:
    """The vGPUs of a GPU over its ``region`` GiB of memory. Those without a place of their own stand side by side."""
    blocks: list[Block] = []
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
        Block(_round(r[0] * cell), _round(len(r) * cell), FREE, "", FREE, "", f"{len(r)} GiB free", len(r) * cell < 18)
        for r in _runs(sorted(set(range(region)) - taken))
    ]
    step = next(s for s in (1, 2, 4, 8, 16, 32, 64) if region / s <= _MOST_TICKS or s == 64)
    ticks = tuple(Tick(_round(n * cell), str(n) if n else "0 GiB") for n in range(0, region, step))
    said = [f"{s.name}, {s.size} GiB, {_word(s)}" for s in shown]
    said += [f"{region - len(taken)} of {region} GiB free"]
    return Bar(name, "; ".join(said) + ".", "GiB", tuple(sorted(blocks, key=lambda b: b.x)), ticks)


def _share(share: Share, start: int, end: int, region: int) -> Block:
    cell = 100 / region
    kind = FRESH if share.fresh else HELD if share.held else IDLE
    title = f"{share.letter}: {share.name}, {share.size} GiB, {_word(share)}"
    width = (end - start) * cell
    label = words.clean(share.name, 24)
    return Block(_round(start * cell), _round(width), kind, share.letter, label, _word(share), title, width < 18)


def whole(gpu: Gpu, name: str) -> Bar:
    """A GPU that is not divided."""
    if gpu.lost:
        kind, label, note = LOST, "lost", "fallen off the bus"
    elif gpu.passthrough:
        kind, label, note = HELD, "whole GPU", "handed out to a virtual machine"
    elif gpu.holders:
        kind, label, note = HELD, "whole GPU", f"held by {words.clean(', '.join(map(str, gpu.holders)), 60)}"
    else:
        kind, label = WHOLE, "whole GPU"
        note = "not divided" if gpu.mig.capable else "cannot be divided into MIG instances"
    return Bar(name, f"{label}, {note}.", "", (Block(0, 100, kind, "", label, note, f"{label}, {note}"),))


def of_gpu(inventory: Inventory, gpu: Gpu, found: Holes | None, *, odd: Collection[str] = ()) -> Bar:
    """The GPU as it is: its instances, else its vGPUs over its memory, else as one."""
    name = f"{words.gpu_name(gpu)}, {words.product(gpu)}"
    if gpu.lost or gpu.passthrough:
        return whole(gpu, name)
    if gpu.mig.enabled and gpu.family:
        shown = pieces.now(gpu)
        ordered = sorted(gpu.instances, key=lambda i: i.place.start)
        states = {p.letter: words.state(i) for p, i in zip(shown, ordered, strict=True)}
        count = inventory.family(gpu).memory_slices
        return instances(name, count, shown, gaps=gaps(found), states=states, odd=odd)
    table = inventory.vgpu_table(gpu)
    shared = shares.now(gpu, table)
    if shared and table is not None and shares.drawable(gpu, table, shared):
        return memory(name, table.region, shared)
    return whole(gpu, name)


def of_plan(picture: Picture, said: tuple[str, str] = ("now", "planned")) -> tuple[Bar, Bar] | None:
    """A GPU before and after, each called as ``said``; None where the picture is in words alone."""
    before, after = (f"{words.clean(picture.title)}, {word}" for word in said)
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
