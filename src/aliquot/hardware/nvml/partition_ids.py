"""GPU instance ids as placements: the partition number that the driver uses internally.

Boards with eight slots: 0 is the whole GPU, 1-2 are halves, 3-6 quarters, 7-14 eighths. Boards with four slots: 0, 1-2
halves, 3-6 quarters. On boards whose missing compute slice is in the low half, the two halves are displayed swapped
(start = slot + half, modulo the board). Source: open-gpu-kernel-modules, checked against captures.
"""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import GpuInstance

_FIRST_SLOT = {
    "eighths": (8, {0: 0, 1: 0, 2: 4, 3: 0, 4: 2, 5: 4, 6: 6, **{n: n - 7 for n in range(7, 15)}}),
    "quarters": (4, {0: 0, 1: 0, 2: 2, 3: 0, 4: 1, 5: 2, 6: 3}),
}


def slots_mirrored(table: Family, instances: Sequence[GpuInstance]) -> bool | None:
    """Return whether this board shows its halves swapped, according to its instances; None if no instance shows it."""
    slots, first = _FIRST_SLOT.get(table.slot_model, (0, {}))
    for instance in instances:
        if not slots or instance.id == 0 or instance.id not in first:
            continue
        unit = max(table.memory_slices // slots, 1)
        slot = instance.place.start // unit
        if slot == first[instance.id]:
            return False
        if slot == (first[instance.id] + slots // 2) % slots:
            return True
    return None
