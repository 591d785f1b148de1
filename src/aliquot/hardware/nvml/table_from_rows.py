"""A geometry table made from the driver's lists, for GPUs and profiles that the catalog lacks. Pure.

The driver does not list placements while MIG mode is off, or compute instance profiles without an instance. These are
derived from the rules that hold for all families of the catalog, and ``estimates`` names them.
"""

from __future__ import annotations

from aliquot.core.model.catalog import ENGINES, ComputeProfile, Family, ModeRules, Product, Profile, Rule
from aliquot.core.model.placement import Placement
from aliquot.hardware.nvml.profiles import ComputeRow, GpuProfileRow, suffix_of_index

_COMPUTE_INDEX = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
"""The NVML index, and so far always the id, of the compute instance profile by its number of
compute slices (nvml.h).
"""


def family_from_rows(
    name: str, rows: tuple[GpuProfileRow, ...], architecture: str, pci_device: str, total_mib: int | None = None
) -> Family:
    """Return a whole table. ``rows`` is not empty. ``total_mib`` is the GPU's memory, for drivers that do not report
    names.
    """
    placement_lists = [r.placements for r in rows if r.placements]
    compute_slices = max(r.slices for r in rows)
    if placement_lists:
        memory_slices = max(p.start + p.size for placements in placement_lists for p in placements)
    else:
        memory_slices = 8 if compute_slices > 4 else compute_slices
    ordered = sorted(rows, key=lambda r: (r.slices, r.index))
    estimates = {"compute"} | ({"placements"} if any(not r.placements for r in rows) else set())
    return Family(
        name=name,
        title=f"GPU {pci_device}, read from the driver",
        architecture=architecture,
        memory_slices=memory_slices,
        compute_slices=compute_slices,
        slot_model="eighths" if memory_slices == 8 else "quarters" if compute_slices == 4 else "other",
        engine_totals={engine: max(r.engines[engine] for r in rows) for engine in ENGINES},
        profiles=tuple(profile_from_row(r, rows, memory_slices, total_mib) for r in ordered),
        rules=(Rule("engine-totals", "engines of all instances together never exceed the GPU's"),),
        products=(Product(pci_device, name),),
        # Only Ampere needs a reset and stores the mode in the board (MIG User Guide); unknown counts as newer.
        mode=ModeRules(architecture == "ampere", architecture == "ampere"),
        source="nvml",
        estimates=tuple(sorted(estimates)),
    )


def profile_from_row(
    row: GpuProfileRow, rows: tuple[GpuProfileRow, ...], memory_slices: int, total_mib: int | None = None
) -> Profile:
    """Return one profile. ``rows`` are all of the GPU's, to infer missing sizes."""
    placements = row.placements or estimated_placements(row, rows, memory_slices)
    name = row.name or profile_name(row, total_mib or max(r.memory_mib for r in rows) or 1)
    _, sign, tail = name.partition("+" if "+" in name else "-")
    return Profile(
        id=row.id,
        name=name,
        nvml_index=row.index,
        max_instances=row.count,
        compute_slices=row.slices,
        starts=tuple(p.start for p in placements),
        size=placements[0].size,
        engines=dict(row.engines),
        compute=compute_profiles(name, row.slices, row.sm),
        memory_mib=row.memory_mib,
        sm=row.sm,
        attributes=tuple(("no-" if sign == "-" else "") + word for word in tail.split(",") if word),
        confidence={"ids": "captured", "placements": "captured" if row.placements else "estimate"},
    )


def estimated_placements(
    row: GpuProfileRow, rows: tuple[GpuProfileRow, ...], memory_slices: int
) -> tuple[Placement, ...]:
    """Return the estimated placements of a profile: aligned spans of its memory, as many as its most numerous sibling
    with the same slices and memory can have. This is true of all known tables with eight and four slices.
    """
    whole = max(r.memory_mib for r in rows) or 1
    # The listed memory of n slices is slightly less than n shares: round up, then to the next size that divides.
    size = max(-(-memory_slices * row.memory_mib // (whole + whole // 16)), 1)
    while memory_slices % size:
        size += 1
    starts = range(0, memory_slices - size + 1, size)
    max_count = max(r.count for r in rows if (r.slices, r.memory_mib) == (row.slices, row.memory_mib))
    return tuple(Placement(start, size) for start in starts)[:max_count]


def profile_name(row: GpuProfileRow, total_mib: int) -> str:
    """Return the name that NVIDIA's tools derive if the driver does not report one: memory in eighths of the GPU,
    rounded. This is go-nvlib's rule, which reproduces every captured table.
    """
    eighths = -(-8 * row.memory_mib // total_mib)
    return f"{row.slices}g.{round(eighths / 8 * -(-total_mib // 1024))}gb{suffix_of_index(row.index)}"


def compute_profiles(name: str, slices: int, sm: int) -> tuple[ComputeProfile, ...]:
    """Return the compute instance profiles of a GPU instance with that many compute slices: aligned spans."""
    found = []
    for width in (1, 2, 3, 4, 6, 7, 8):
        if width > slices or (width != slices and width > 4):
            continue
        whole = width == slices
        step = 1 if width == 1 else 2 if width == 2 else 4
        starts = (0,) if whole else tuple(range(0, slices - width + 1, step))
        found.append(
            ComputeProfile(
                id=_COMPUTE_INDEX[width],
                name=name if whole else f"{width}c.{name}",
                nvml_index=_COMPUTE_INDEX[width],
                max_instances=len(starts),
                compute_slices=width,
                starts=starts,
                size=width,
                sm=sm if whole else None,
                default=whole,
            )
        )
    return tuple(found)


def compute_from_rows(name: str, slices: int, rows: tuple[ComputeRow, ...]) -> tuple[ComputeProfile, ...]:
    """Return compute instance profiles as the driver lists them for an existing GPU instance. The widest is the
    default. Of two equally wide ones (the double-memory profile on Hopper) it is the later index, as in the driver.
    """
    widest = max((r for r in rows if r.slices == slices), key=lambda r: r.index, default=None)
    found = []
    for row in rows:
        placements = row.placements or (Placement(0, row.slices),)
        found.append(
            ComputeProfile(
                id=row.id,
                name=row.name or (name if row.slices == slices else f"{row.slices}c.{name}"),
                nvml_index=row.index,
                max_instances=row.count,
                compute_slices=row.slices,
                starts=tuple(p.start for p in placements),
                size=placements[0].size,
                sm=row.sm,
                default=row is widest,
            )
        )
    return tuple(found)
