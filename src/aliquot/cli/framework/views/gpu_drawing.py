"""Pictures of GPUs in text, to the memory slice."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.cli.framework import color as colour
from aliquot.core.model.catalog import Family
from aliquot.core.rendering.mig_picture import DrawnInstance
from aliquot.core.rendering.vgpu_picture import DrawnVgpu

_RULER = "memory slice  "


def tint(item: DrawnInstance | DrawnVgpu) -> str:
    """What is held is yellow, what a plan makes green."""
    return colour.GREEN if item.fresh else colour.YELLOW if item.held else ""


def width(lines: Sequence[str]) -> int:
    """The column at which the ruler starts, so that every GPU of a picture lines up."""
    return max((len(line) for line in lines), default=0) + 2


def ruler(left: str, family: Family, column: int) -> str:
    """A GPU's first line, with the numbers of its memory slices."""
    cell = len(str(family.memory_slices - 1))
    numbers = " ".join(f"{n:>{cell}}" for n in range(family.memory_slices))
    return f"{left:<{column}}{_RULER}{numbers}"


def row(left: str, instances: Sequence[DrawnInstance], family: Family, column: int, tinted: bool) -> str:
    """A line of letters under the ruler."""
    cell = len(str(family.memory_slices - 1))
    letters = ["."] * family.memory_slices
    for instance in instances:
        for n in range(instance.place.start, min(instance.place.start + instance.place.size, family.memory_slices)):
            letters[n] = colour.paint(instance.letter, tint(instance), tinted)
    return f"{left:<{column}}{' ' * len(_RULER)}" + " ".join(" " * (cell - 1) + letter for letter in letters)


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Rows in aligned columns; empty columns vanish."""
    if not rows:
        return []
    widths = [max(len(r[n]) for r in rows) for n in range(len(rows[0]))]
    keep = [n for n, w in enumerate(widths) if w]
    return [(indent + "  ".join(f"{r[n]:<{widths[n]}}" for n in keep)).rstrip() for r in rows]
