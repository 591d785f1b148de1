"""What looks at a node add up to over time: since when a piece is idle, and the most that was seen of its use.

A piece is a GPU instance, or a whole GPU outside MIG mode. It is the same one as at the look before if its GPU, place,
profile and MIG devices are, the machine has not rebooted, and nobody is known to have made it anew in between: a MIG
device's UUID follows from its place, so that an instance made anew has the old one's. Aliquot's own changes are known
from the journal. What others destroy and make again at the same place between two looks is taken for the same.

After a pause longer than ``GAP_S`` everything starts anew: what was not looked at may have been used. So a lost record
or a watcher that was away makes what is told younger, never older. A use shorter than the time between two looks can
be missed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TypeVar

import msgspec

from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.model.usage import Usage

STEP_MIB = 128
GAP_S = 180.0
"""The longest time between two looks that still count as watching: some of an agent's, or its restart."""

N = TypeVar("N", int, float)
Made = tuple[str, str]
"""A GPU's PCI address, and what was made anew on it: an instance by its placement (``4:4``), compute instances by the
id of their GPU instance (``#2``), everything ("").
"""


class Piece(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece as far as it was watched. ``instance`` None is a whole GPU. ``since`` is its first look, ``idle`` the
    first look since which every one found it idle (None: it is held); seconds of wall time. Peaks are None where
    nothing was told.
    """

    gpu: str
    uuid: str
    since: float
    instance: int | None = None
    profile: str = ""
    placement: str = ""
    devices: tuple[str, ...] = ()
    idle: float | None = None
    peak_mib: int | None = None
    peak_compute: float | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it the same piece at the next look."""
        return self.gpu, self.uuid, self.instance, self.profile, self.placement, self.devices


class Watch(msgspec.Struct, frozen=True):
    """All pieces of a node at the last look (``at``, seconds of wall time), in that boot of the machine."""

    boot: str = ""
    at: float = 0.0
    pieces: tuple[Piece, ...] = ()


def follow(
    former: Watch,
    inventory: Inventory,
    usage: Iterable[Usage],
    now: float,
    boot: str = "",
    *,
    made: Collection[Made] = (),
) -> Watch:
    """What one more look adds. ``made`` is what Aliquot made anew since the former one. A clock that was set back
    starts everything anew, as a pause does.
    """
    gap = not 0 <= now - former.at <= GAP_S or boot != former.boot
    known = {} if gap else {p.key: p for p in former.pieces if not _anew(p, made)}
    told = {(u.gpu, u.instance): u for u in usage}
    found: list[Piece] = []
    for gpu in inventory.gpus:
        for bare, held in _pieces(gpu, now):
            before = known.get(bare.key, bare)
            use = told.get((bare.gpu, bare.instance), Usage(bare.gpu))
            idle = None if held else now if before.idle is None else before.idle
            found.append(
                msgspec.structs.replace(
                    before,
                    idle=idle,
                    peak_mib=_most(before.peak_mib, use.memory_used_mib),
                    peak_compute=_most(before.peak_compute, use.compute),
                )
            )
    return Watch(boot, now, tuple(found))


def told(watch: Watch, usage: Iterable[Usage]) -> tuple[Usage, ...]:
    """Every piece with what was just read of it, and what was seen over time. One that nothing was read of (no compute
    instance) is told, too.
    """
    read = {(u.gpu, u.instance): u for u in usage}
    return tuple(
        msgspec.structs.replace(
            read.get((p.gpu, p.instance), Usage(p.gpu, p.instance, p.profile)),
            idle_since=p.idle,
            peak_mib=p.peak_mib,
            peak_compute=p.peak_compute,
            watched_since=p.since,
        )
        for p in watch.pieces
    )


def still(usage: Iterable[Usage], was: Inventory, now: Inventory, anew: Collection[str] = ()) -> tuple[Usage, ...]:
    """What was told of pieces (of the GPUs as they were then) that are the same ones now. Of GPUs that were changed
    since (``anew``, PCI addresses) nothing is known to be.
    """
    then, there = (
        {(p.gpu, p.instance): p.key for gpu in inventory.gpus for p, _ in _pieces(gpu, 0.0)} for inventory in (was, now)
    )
    same = {piece for piece, key in then.items() if there.get(piece) == key and piece[0] not in anew}
    return tuple(u for u in usage if (u.gpu, u.instance) in same)


def rounded(watch: Watch) -> Watch:
    """What is written down: peaks rounded up, so that a peak that rises little is no write, and what is said of them
    after a restart ("at most") stays true.
    """
    return msgspec.structs.replace(watch, pieces=tuple(map(_rounded, watch.pieces)))


def worth_keeping(kept: Watch, now: Watch) -> bool:
    """Whether a record that says ``kept`` (rounded) is worth a write: not for time that passes."""
    before = {p.key: p for p in kept.pieces}
    if kept.boot != now.boot or before.keys() != {p.key for p in now.pieces}:
        return True
    return any(_differs(before[p.key], p) for p in now.pieces)


def _differs(kept: Piece, now: Piece) -> bool:
    if (kept.since, kept.idle) != (now.since, now.idle):
        return True
    return _above(now.peak_mib, kept.peak_mib) or _above(now.peak_compute, kept.peak_compute)


def _above(one: float | None, other: float | None) -> bool:
    return one is not None and (other is None or one > other)


def _rounded(piece: Piece) -> Piece:
    mib, share = piece.peak_mib, piece.peak_compute
    return msgspec.structs.replace(
        piece,
        peak_mib=None if mib is None else -(-mib // STEP_MIB) * STEP_MIB,
        peak_compute=None if share is None else min(1.0, math.ceil(share * 20) / 20),
    )


def _anew(piece: Piece, made: Collection[Made]) -> bool:
    return any((piece.gpu, what) in made for what in ("", piece.placement, f"#{piece.instance}"))


def _pieces(gpu: Gpu, now: float) -> list[tuple[Piece, bool]]:
    """What is there to be used, and whether it is held. A GPU in MIG mode is used by its instances alone."""
    if gpu.lost or gpu.passthrough:
        return []
    if not gpu.mig.enabled:
        held = bool(gpu.holders) or any(v.held for v in gpu.vgpus)
        return [(Piece(gpu.pci, gpu.uuid, now, idle=None if held else now), held)]
    return [(_piece(gpu, i, now), i.held) for i in gpu.instances]


def _piece(gpu: Gpu, instance: GpuInstance, now: float) -> Piece:
    devices = tuple(c.uuid for c in instance.compute_instances)
    idle = None if instance.held else now
    return Piece(gpu.pci, gpu.uuid, now, instance.id, instance.profile, instance.placement, devices, idle)


def _most(one: N | None, two: N | None) -> N | None:
    return two if one is None else one if two is None else max(one, two)
