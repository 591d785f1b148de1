"""The ids that the driver assigns to GPU instances."""

from __future__ import annotations

from collections.abc import Collection

from aliquot.core.model.catalog import Family
from aliquot.core.model.placement import Placement


def instance_id(family: Family, place: Placement, slots_mirrored: bool, taken: Collection[int]) -> int:
    """Return the id that the driver assigns to a placement.

    Id 0 is the whole GPU, 1-2 are halves, 3-6 quarters, 7-14 eighths (source: open GPU kernel modules 595). For a
    family that is not divided into halves, the lowest free number stands in.
    """
    units = family.memory_slices
    parts = units // place.size
    if parts & (parts - 1) or units % place.size:
        return next(n for n in range(units + 1) if n not in taken)
    start = (place.start + units // 2) % units if slots_mirrored and parts > 1 else place.start
    return parts - 1 + start // place.size
