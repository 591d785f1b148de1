"""What is free on a GPU, what of it nothing wanted can use, and what a better arrangement would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from functools import lru_cache

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import Placement, slices
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable, compiled_table
from aliquot.core.planner.rules import allowed
from aliquot.core.planner.target_state import placed_key


class ProfileCapacity(msgspec.Struct, frozen=True):
    """How many more instances of one profile a GPU takes. ``now``: beside everything that is there; ``repacked``: if
    idle instances moved, none of them given up and held ones where they are. ``starts`` are the first memory slices at
    which one more is legal now.
    """

    profile: str
    profile_id: int
    now: int
    repacked: int
    starts: tuple[int, ...] = ()

    @property
    def lost(self) -> int:
        """Instances that only the arrangement stands in the way of."""
        return self.repacked - self.now


class Fragmentation(msgspec.Struct, frozen=True):
    """One GPU in MIG mode. ``free`` are the memory slices that no instance covers, ``stranded`` those of them that no
    wanted profile can use as things lie. ``capacities`` has a row for every profile, in the order of the family's
    table.
    """

    gpu: str
    free: tuple[int, ...]
    stranded: tuple[int, ...]
    capacities: tuple[ProfileCapacity, ...]

    @property
    def lost(self) -> tuple[ProfileCapacity, ...]:
        """Profiles of which moving idle instances would give more."""
        return tuple(capacity for capacity in self.capacities if capacity.lost)


def find_fragmentation(inventory: Inventory, gpu: Gpu, wanted: Collection[str] | None = None) -> Fragmentation | None:
    """None for a GPU that is not in MIG mode. ``wanted`` are profile names; None, or none that this GPU has, means
    every profile of the table.
    """
    if gpu.lost or not gpu.mig.enabled or gpu.family is None:
        return None
    table = compiled_table(inventory.family(gpu))
    placed = tuple(k for k in map(placed_key, gpu.instances) if k in table.masks)
    held = tuple(k for k, i in ((placed_key(i), i) for i in gpu.instances) if i.held and k in table.masks)
    free, capacities, reach = _measure(table.family, tuple(sorted(placed)), tuple(sorted(held)))
    names = {p.name: p.id for p in table.family.profiles}
    wanted_ids = {names[name] for name in wanted or () if name in names} or set(names.values())
    reachable = 0
    for profile_id in wanted_ids:
        reachable |= reach[profile_id]
    return Fragmentation(gpu.pci, slices(free), slices(free & ~reachable), capacities)


@lru_cache(maxsize=4096)  # GPUs of a fleet look alike
def _measure(
    family: Family, placed: tuple[PlacedInstance, ...], held: tuple[PlacedInstance, ...]
) -> tuple[int, tuple[ProfileCapacity, ...], dict[int, int]]:
    """Free slices, capacities, and the free slices that each profile reaches."""
    table = compiled_table(family)
    free = ((1 << table.family.memory_slices) - 1) & ~table.mask(placed)
    capacities, reach = [], {}
    for profile in table.family.profiles:
        starts = pack.legal_starts(table, placed, profile.id)
        reach[profile.id] = 0
        for start in starts:
            reach[profile.id] |= table.masks[profile.id, start]
        now = _count_additional(table, placed, profile.id, placed) if starts else 0
        capacities.append(
            ProfileCapacity(
                profile.name,
                profile.id,
                now,
                max(now, _count_additional(table, placed, profile.id, held)),
                tuple(starts),
            )
        )
    return free, tuple(capacities), reach


def _count_additional(
    table: PlacementTable, placed: tuple[PlacedInstance, ...], profile_id: int, fixed: tuple[PlacedInstance, ...]
) -> int:
    """How many more of a profile there can be, beside as many of each as there are, those in ``fixed`` unmoved."""
    counts = Counter(p for p, _ in placed)
    more = 0
    while True:
        counts[profile_id] += 1
        if not allowed(table, counts) or next(pack.arrangements(table, counts, fixed), None) is None:
            return more
        more += 1


def legal_placements(family: Family, gpu: Gpu) -> dict[int, tuple[Placement, ...]]:
    """Profile id -> the placements at which one more instance is legal beside what exists."""
    table = compiled_table(family)
    placed = [k for k in map(placed_key, gpu.instances) if k in table.masks]
    return {
        p.id: tuple(p.placement(start) for start in pack.legal_starts(table, placed, p.id)) for p in family.profiles
    }
