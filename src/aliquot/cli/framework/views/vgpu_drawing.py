"""vGPUs drawn over the memory of a GPU in GiB."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.cli.framework import color as colors
from aliquot.cli.framework.views.gpu_drawing import Columns, tint
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.core.rendering.vgpu_picture import DrawnVgpu

_RULER = "GiB  "
_CELLS = 48
_TICK = 8


def ruler(left: str, table: VgpuTable, column: int) -> str:
    """Return the line above the bar, with a number every eighth cell."""
    unit = _unit(table)
    cells = -(-table.region // unit)
    marks = "".join(f"{n * unit:<{_TICK}}" for n in range(0, cells, _TICK)).rstrip()
    return Columns(f"{left:<{column}}{_RULER}", marks)


def bar(left: str, shares: Sequence[DrawnVgpu], table: VgpuTable, column: int, tinted: bool) -> str:
    """Draw the memory as letters, one cell for each GiB (two or three GiB on large GPUs); ``.`` is free memory."""
    unit = _unit(table)
    cells = ["."] * -(-table.region // unit)
    free = 0
    for share in shares:
        start = free if share.start is None else share.start
        free = max(free, start + share.size)
        for n in range(start // unit, min(max(start // unit + 1, -(-(start + share.size) // unit)), len(cells))):
            cells[n] = colors.paint(share.letter, tint(share), tinted)
    return Columns(f"{left:<{column}}{' ' * len(_RULER)}", "".join(cells))


def _unit(table: VgpuTable) -> int:
    return -(-table.region // _CELLS)
