"""Pictures of GPUs in text, to the memory slice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aliquot.cli.framework import color as colors
from aliquot.core.model.catalog import Family
from aliquot.core.rendering.mig_picture import DrawnInstance
from aliquot.core.rendering.vgpu_picture import DrawnVgpu

_RULER = "memory slice  "


class Columns(str):
    """A line of columns with their padding. A line that is too long is broken before a column."""

    __slots__ = ("parts",)
    parts: tuple[str, ...]

    def __new__(cls, *parts: str) -> Columns:
        made = super().__new__(cls, "".join(parts).rstrip())
        made.parts = parts
        return made


def lines_in_parts(lines: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Return each line as its columns; a line of words is one."""
    return tuple(line.parts if isinstance(line, Columns) else (line,) for line in lines)


def tint(item: DrawnInstance | DrawnVgpu) -> str:
    """Return the color of an instance: green if a plan creates it, yellow if it is held."""
    return colors.GREEN if item.fresh else colors.YELLOW if item.held else ""


def width(lines: Sequence[str]) -> int:
    """Return the column at which the ruler starts, so that all GPUs of a picture line up."""
    return max((len(line) for line in lines), default=0) + 2


def ruler(left: str, family: Family, column: int) -> str:
    """Return the first line of a GPU, with the numbers of its memory slices."""
    cell = len(str(family.memory_slices - 1))
    numbers = " ".join(f"{n:>{cell}}" for n in range(family.memory_slices))
    return Columns(f"{left:<{column}}{_RULER}", numbers)


def row(left: str, instances: Sequence[DrawnInstance], family: Family, column: int, tinted: bool) -> str:
    """Return a line of letters under the ruler."""
    cell = len(str(family.memory_slices - 1))
    letters = ["."] * family.memory_slices
    for instance in instances:
        for n in range(instance.place.start, min(instance.place.start + instance.place.size, family.memory_slices)):
            letters[n] = colors.paint(instance.letter, tint(instance), tinted)
    return Columns(f"{left:<{column}}{' ' * len(_RULER)}", " ".join(" " * (cell - 1) + letter for letter in letters))


def table(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Align rows in columns; empty columns vanish."""
    if not rows:
        return []
    widths = [max(len(r[n]) for r in rows) for n in range(len(rows[0]))]
    keep = [n for n, w in enumerate(widths) if w]
    return [Columns(*((indent if n == keep[0] else "  ") + f"{r[n]:<{widths[n]}}" for n in keep)) for r in rows]
