"""What still fits now, beside the instances that are there."""

from __future__ import annotations

from aliquot.model.catalog import Family
from aliquot.model.inventory import Gpu
from aliquot.model.placement import Placement
from aliquot.planner import pack
from aliquot.planner.board import board
from aliquot.planner.target import key


def fits_now(family: Family, gpu: Gpu) -> dict[int, tuple[Placement, ...]]:
    """Profile id -> the placements at which one more instance is legal beside what exists."""
    b = board(family)
    placed = [k for k in map(key, gpu.instances) if k in b.masks]
    return {p.id: tuple(p.placement(start) for start in pack.fits_beside(b, placed, p.id)) for p in family.profiles}
