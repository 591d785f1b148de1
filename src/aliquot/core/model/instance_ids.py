"""The ids that the driver gives to GPU instances."""

from __future__ import annotations

from collections.abc import Collection

from aliquot.core.model.catalog import Family
from aliquot.core.model.placement import Placement


def instance_id(family: Family, place: Placement, slots_mirrored: bool, taken: Collection[int]) -> int:
    """The id that the driver gives to a place: 0 the whole GPU, 1-2 halves, 3-6 quarters, 7-14 eighths (open GPU
    kernel modules 595). Where a family is not cut in halves, the lowest free number stands in.
    """
    units = family.memory_slices
    parts = units // place.size
    if parts & (parts - 1) or units % place.size:
        return next(n for n in range(units + 1) if n not in taken)
    start = (place.start + units // 2) % units if slots_mirrored and parts > 1 else place.start
    return parts - 1 + start // place.size
