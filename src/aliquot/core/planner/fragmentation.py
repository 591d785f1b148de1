"""Free slices of a GPU, those that no wanted profile can use, and what moving instances would gain."""

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
    """The number of further instances of one profile that a GPU can take."""

    profile: str
    profile_id: int
    now: int
    """Besides everything that exists."""
    repacked: int
    """If idle instances moved. None of them is destroyed, and held ones stay in place."""
    starts: tuple[int, ...] = ()
    """The first memory slices at which one more is legal now."""

    @property
    def lost(self) -> int:
        """Instances that are possible only with another arrangement."""
        return self.repacked - self.now


class Fragmentation(msgspec.Struct, frozen=True):
    """The fragmentation of one GPU in MIG mode."""

    gpu: str
    free: tuple[int, ...]
    """Memory slices that no instance covers."""
    stranded: tuple[int, ...]
    """Free slices that no wanted profile can use in the present arrangement."""
    capacities: tuple[ProfileCapacity, ...]
    """An entry for every profile, in the order of the family's table."""

    @property
    def lost(self) -> tuple[ProfileCapacity, ...]:
        """Profiles that would gain instances if idle instances moved."""
        return tuple(capacity for capacity in self.capacities if capacity.lost)


def find_fragmentation(inventory: Inventory, gpu: Gpu, wanted: Collection[str] | None = None) -> Fragmentation | None:
    """Return the fragmentation of a GPU. None if the GPU is not in MIG mode.

    ``wanted`` are profile names. None, or no name that this GPU has, means every profile of the table.
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


@lru_cache(maxsize=4096)  # most GPUs of a fleet are in the same state
def _measure(
    family: Family, placed: tuple[PlacedInstance, ...], held: tuple[PlacedInstance, ...]
) -> tuple[int, tuple[ProfileCapacity, ...], dict[int, int]]:
    """Return free slices, capacities, and the free slices that each profile can use."""
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
    """Return how many more of a profile fit if the number of each is kept and those in ``fixed`` do not move."""
    counts = Counter(p for p, _ in placed)
    more = 0
    while True:
        counts[profile_id] += 1
        if not allowed(table, counts) or next(pack.arrangements(table, counts, fixed), None) is None:
            return more
        more += 1


def legal_placements(family: Family, gpu: Gpu) -> dict[int, tuple[Placement, ...]]:
    """Return the placements at which one more instance is legal besides the existing ones, by profile id."""
    table = compiled_table(family)
    placed = [k for k in map(placed_key, gpu.instances) if k in table.masks]
    return {
        p.id: tuple(p.placement(start) for start in pack.legal_starts(table, placed, p.id)) for p in family.profiles
    }
