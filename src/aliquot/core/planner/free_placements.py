"""What still fits now, beside the instances that are there."""

from __future__ import annotations

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.placement import Placement
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import compiled_table
from aliquot.core.planner.target_state import placed_key


def legal_placements(family: Family, gpu: Gpu) -> dict[int, tuple[Placement, ...]]:
    """Profile id -> the placements at which one more instance is legal beside what exists."""
    table = compiled_table(family)
    placed = [k for k in map(placed_key, gpu.instances) if k in table.masks]
    return {
        p.id: tuple(p.placement(start) for start in pack.legal_starts(table, placed, p.id)) for p in family.profiles
    }
