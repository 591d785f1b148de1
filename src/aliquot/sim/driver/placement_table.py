"""The possible placements of a GPU instance, their ids, and the placement that the driver chooses by default.

The id of a GPU instance is the number of the partition that it covers, so it encodes the placement. Source of the
tables for eighths and quarters: open-gpu-kernel-modules 595.45.04, which agrees with every public capture. Halves and
thirds (RTX PRO 5000/4500, RTX 6000D, Thor) follow the same pattern, whole first, then larger to smaller. They are an
estimate.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.model.catalog import ENGINES, Family, Profile

SLOTS: dict[str, tuple[tuple[int, int], ...]] = {
    "eighths": (
        *((0, 8), (0, 4), (4, 4), (0, 2), (2, 2), (4, 2), (6, 2)),
        *((0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1)),
    ),
    "quarters": ((0, 4), (0, 2), (2, 2), (0, 1), (1, 1), (2, 1), (3, 1)),
    "halves": ((0, 2), (0, 1), (1, 1)),
    "thirds": ((0, 3), (0, 2), (1, 2), (0, 1), (1, 1), (2, 1)),
}
"""The internal slots (first, count) of each partition number, per slot model."""


def span_mask(start: int, size: int) -> int:
    """Return slots as bits: slot n is bit n."""
    return ((1 << size) - 1) << start


class SlotPartition(msgspec.Struct, frozen=True):
    """A partition that a profile may use: its instance id, internal slots, and displayed placement."""

    id: int
    mask: int
    start: int
    size: int


class SlotTable:
    """The partitions of one board. ``slots_mirrored``: the missing compute slice is in the low half of the chip, so the
    displayed start is (internal slot + half) mod slots.
    """

    def __init__(self, family: Family, slots_mirrored: bool = False) -> None:
        self.family = family
        self.slots_mirrored = slots_mirrored
        self.slots = SLOTS[family.slot_model]
        self.units = self.slots[0][1]
        self.scale = family.memory_slices // self.units
        self.partitions = {p.id: self._partitions(p) for p in family.profiles}
        self.choices = [q.mask for p in family.plain_profiles for q in self.partitions[p.id]]

    def _partitions(self, profile: Profile) -> tuple[SlotPartition, ...]:
        found = []
        for start in profile.starts:
            first = start // self.scale
            if self.slots_mirrored and profile.size != self.family.memory_slices:
                first = (first + self.units // 2) % self.units
            span = (first, profile.size // self.scale)
            number = self.slots.index(span)
            found.append(SlotPartition(number, span_mask(*span), start, profile.size))
        return tuple(sorted(found, key=lambda q: q.id))

    def at(self, profile_id: int, start: int, size: int) -> SlotPartition | None:
        """Return the partition displayed at a placement, or None if this profile cannot be there."""
        return next((q for q in self.partitions[profile_id] if (q.start, q.size) == (start, size)), None)

    def default(self, profile_id: int, used: int) -> SlotPartition | None:
        """Return the driver's default: the free partition that leaves the most (plain profile, placement) choices for
        later requests, the lowest id on a tie. This reproduces every public capture from R510 on.
        """
        best: SlotPartition | None = None
        most = -1
        for option in self.partitions[profile_id]:
            if option.mask & used:
                continue
            after = used | option.mask
            left = sum(1 for mask in self.choices if not mask & after)
            if left > most:
                best, most = option, left
        return best

    def disjoint(self, profile_id: int, used: int) -> int:
        """Return how many more instances of one profile fit. Placements are intervals, so the earliest end is chosen
        first.
        """
        count, taken = 0, used
        for option in sorted(self.partitions[profile_id], key=lambda q: (q.mask.bit_length(), -q.id)):
            if not option.mask & taken:
                taken |= option.mask
                count += 1
        return count


def allowed(family: Family, profiles: Iterable[Profile]) -> bool:
    """Return whether compute slices, engines, counts and the family's rules allow these instances together, regardless
    of placement.
    """
    together = list(profiles)
    ids = [p.id for p in together]
    if sum(p.compute_slices for p in together) > family.compute_slices:
        return False
    if any(ids.count(p.id) > p.max_instances for p in together):
        return False
    for engine in ENGINES:
        total = family.engine_totals.get(engine)
        if total is not None and sum(p.engines.get(engine) or 0 for p in together) > total:
            return False
    return all(_rule_holds(rule.kind, rule.profiles, rule.exceptions, rule.count, together) for rule in family.rules)


def _rule_holds(
    kind: str, named: tuple[str, ...], exceptions: tuple[str, ...], count: int, together: list[Profile]
) -> bool:
    match kind:
        case "at-most":
            return sum(p.name in named for p in together) <= count
        case "at-most-compute":
            return sum("gfx" not in p.attributes for p in together) <= count
        case "at-most-gfx":
            return sum("gfx" in p.attributes for p in together) <= count
        case "excludes":
            greedy = [p for p in together if p.name in named]
            others = [p for p in together if p.name not in named]
            return not greedy or (len(greedy) == 1 and all(p.name in exceptions for p in others))
        case _:
            return True
