"""A geometry table compiled for the search: masks, limits by profile id, and the headroom of a mask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from aliquot.core.model.catalog import ENGINES, Family, Profile, Rule

PlacedInstance = tuple[int, int]
"""A GPU instance in a placed geometry: (profile id, start)."""


class PlacementTable:
    """A geometry table in the form that the search needs. Compiled once per family and process."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.profiles = family.by_id
        self.starts: dict[int, tuple[int, ...]] = {p.id: p.starts for p in family.profiles}
        self.masks: dict[PlacedInstance, int] = {
            (p.id, start): p.placement(start).mask for p in family.profiles for start in p.starts
        }
        self.order: dict[int, tuple[int, int, int]] = {
            p.id: (-p.size, -p.compute_slices, n) for n, p in enumerate(family.profiles)
        }
        self.engines: dict[int, tuple[int, ...]] = {p.id: self._engines(p) for p in family.profiles}
        self.totals = tuple(family.engine_totals.get(e) for e in ENGINES)
        self.rules: tuple[tuple[Rule, frozenset[int], frozenset[int]], ...] = tuple(
            (rule, self._ids(rule.profiles), self._ids(rule.exceptions)) for rule in family.rules
        )
        self._plain_masks = [self.masks[p.id, start] for p in family.plain_profiles for start in p.starts]
        self.bits: dict[PlacedInstance, int] = {key: 1 << n for n, key in enumerate(self.masks)}
        """A bit for each placed instance. ``placed_states`` describes a placed geometry by them."""
        self._headroom: dict[int, int] = {}
        self.multisets: dict[tuple[PlacedInstance, ...], list[Counter[int]]] = {}
        """Legal multisets by what is pinned, filled by ``placement_search.nearest``."""
        self.placed_states: dict[int, tuple[tuple[int, int], ...]] = {}
        """Placed geometries by packed counts, filled by ``placed_states``."""

    def _ids(self, names: Iterable[str]) -> frozenset[int]:
        return frozenset(self.family.by_name[name].id for name in names if name in self.family.by_name)

    @staticmethod
    def _engines(profile: Profile) -> tuple[int, ...]:
        return tuple(profile.engines.get(e) or 0 for e in ENGINES)

    def headroom(self, mask: int) -> int:
        """Return how many (plain profile, placement) choices a mask leaves open.

        The driver itself uses this measure when it picks a placement: it takes the one that leaves the most.
        """
        left = self._headroom.get(mask)
        if left is None:
            left = self._headroom[mask] = sum(not (mask & m) for m in self._plain_masks)
        return left

    def choices(self, profile_id: int, mask: int, slots_mirrored: bool = False) -> list[int]:
        """Return free starts for a profile in the order in which the driver would choose.

        The most headroom comes first, then the lowest instance id. On a ``slots_mirrored`` board, ids count from the
        upper half on.
        """
        half = self.family.memory_slices // 2 if slots_mirrored else 0
        free = [s for s in self.starts[profile_id] if not self.masks[profile_id, s] & mask]
        return sorted(
            free,
            key=lambda s: (
                -self.headroom(mask | self.masks[profile_id, s]),
                (s + half) % self.family.memory_slices,
            ),
        )

    def mask(self, placed: Iterable[PlacedInstance]) -> int:
        """Return all slices that a placed geometry covers, as bits."""
        out = 0
        for key in placed:
            out |= self.masks[key]
        return out

    def canonical(self, profile_ids: Iterable[int]) -> list[int]:
        """Sort profiles in the order of creation: widest first, then the order of ``nvidia-smi mig -lgip``."""
        return sorted(profile_ids, key=self.order.__getitem__)


@lru_cache(maxsize=64)
def compiled_table(family: Family) -> PlacementTable:
    """Return the compiled table of a family. Equal tables share one.

    The driver's own table is read again with each session and with each document of an agent.
    """
    return PlacementTable(family)
