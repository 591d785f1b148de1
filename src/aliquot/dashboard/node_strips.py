"""A strip with one small bar for each GPU of a node. It has few SVG elements, so that a thousand nodes load fast."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.fragmentation import find_fragmentation
from aliquot.dashboard import formatting as words
from aliquot.dashboard import gpu_bars as pictures
from aliquot.dashboard.gpu_bars import GpuBar

WIDTH, GAP, HEIGHT = 96, 8, 20


class Strip(msgspec.Struct, frozen=True):
    """The GPUs of a node as SVG path data by kind of block, in a box of ``width`` by ``height``.

    ``sentence`` is the text alternative.
    """

    width: int
    height: int
    paths: tuple[tuple[str, str], ...]
    sentence: str


def strip(inventory: Inventory) -> Strip:
    """Draw all GPUs of a node from left to right."""
    paths: dict[str, list[str]] = {}
    parts = []
    for n, gpu in enumerate(inventory.gpus):
        bar = pictures.of_gpu(inventory, gpu, find_fragmentation(inventory, gpu))
        for block in bar.blocks:
            paths.setdefault(block.kind, []).append(_rectangle(n * (WIDTH + GAP), block.x, block.width))
        parts.append(f"GPU {gpu.index}: {_short(bar)}")
    width = max(1, len(inventory.gpus)) * (WIDTH + GAP) - GAP
    sentence = "; ".join(parts) or "no GPU"
    return Strip(width, HEIGHT, tuple((k, "".join(p)) for k, p in sorted(paths.items())), sentence)


def _rectangle(left: int, percent: float, width: float) -> str:
    start, length = left + percent * WIDTH / 100, width * WIDTH / 100
    return f"M{start + 0.5:g} 0.5h{max(length - 1, 0.5):g}v{HEIGHT - 1}h-{max(length - 1, 0.5):g}z"


def _short(bar: GpuBar) -> str:
    kinds = [b.kind for b in bar.blocks]
    counts = [(kinds.count(kind), kind) for kind in (pictures.HELD, pictures.IDLE) if kind in kinds]
    parts = [f"{n} {kind}" for n, kind in counts]
    if pictures.BROKEN in kinds:
        parts.append("has a hole that can be closed")
    else:
        parts += ["has a hole"] if pictures.HOLE in kinds else ["has free room"] if pictures.FREE in kinds else []
    return words.listed(parts) or words.listed(_notes(bar.blocks))


def _notes(blocks: Collection[pictures.BarBlock]) -> list[str]:
    return [b.note or b.label for b in blocks]
