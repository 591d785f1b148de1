"""Rows that a driver would list for a family, built from the catalog."""

from __future__ import annotations

from aliquot.core.model.catalog import Family
from aliquot.hardware.nvml.profiles import GpuProfileRow


def rows_of(family: Family, *, placements: bool = True) -> tuple[GpuProfileRow, ...]:
    """Return the driver's list for a GPU that matches the catalog exactly. Unknown numbers are 0."""
    return tuple(
        GpuProfileRow(
            index=p.nvml_index,
            id=p.id,
            name=p.name,
            slices=p.compute_slices,
            count=p.max_instances,
            sm=p.sm or 0,
            engines={engine: count or 0 for engine, count in p.engines.items()},
            memory_mib=p.memory_mib or 0,
            gfx=p.gfx,
            p2p=False,
            placements=p.placements if placements else None,
        )
        for p in sorted(family.profiles, key=lambda p: p.nvml_index)
    )
