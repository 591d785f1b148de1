"""Compute instances in one GPU instance: which stay, which are destroyed, and where new ones are created."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from aliquot.core.model.actions import ComputePart
from aliquot.core.model.catalog import ComputeProfile, Profile
from aliquot.core.model.inventory import ComputeInstance
from aliquot.core.model.placement import Placement

Slot = tuple[int, int]
"""(compute profile id, first compute slot)."""


class ComputeChange(msgspec.Struct, frozen=True):
    """A change in a GPU instance."""

    destroy: tuple[ComputeInstance, ...] = ()
    create: tuple[ComputePart, ...] = ()

    @property
    def weight(self) -> tuple[int, int, int]:
        """(held compute instances destroyed, destroyed, created)."""
        return sum(bool(c.holders) for c in self.destroy), len(self.destroy), len(self.create)


def fits(profile: Profile, layout: Sequence[int], starts: Sequence[int] | None = None) -> bool:
    """Report whether these compute profiles fit together into an empty instance, at ``starts`` if given."""
    return change(profile, (), layout, starts) is not None


def change(
    profile: Profile, present: Sequence[ComputeInstance], layout: Sequence[int], starts: Sequence[int] | None
) -> ComputeChange | None:
    """Return the smallest change from the present compute instances to the wanted layout.

    ``layout`` is compute profile ids, at ``starts`` if given. None if the layout does not fit into the profile, or if a
    driver that places compute instances itself cannot produce it.
    """
    table = {c.id: c for c in profile.compute}
    if any(i not in table for i in layout) or sum(table[i].compute_slices for i in layout) > profile.compute_slices:
        return None
    if any(list(layout).count(i) > table[i].max_instances for i in set(layout)):
        return None
    if starts is None and not present and list(layout) == [profile.default_compute.id]:
        return ComputeChange(create=(ComputePart(profile.default_compute.name, profile.default_compute.id),))
    by_slot = {(c.profile_id, c.place.start): c for c in present}
    options = [tuple(zip(layout, starts, strict=True))] if starts is not None else list(_layouts(table, layout))
    find_changes = _changes_with_placements if profile.placed_compute else _changes_without_placements
    changes = (change for slots in options if _legal(table, slots) for change in find_changes(profile, by_slot, slots))
    return min(changes, key=lambda c: c.weight, default=None)


def driver_choice(profile: Profile, kind: ComputeProfile, taken: int) -> Placement | None:
    """Return where the driver puts a compute instance that is created without a placement. None if no slot is free.

    It chooses the free placement that leaves the most choices, the lowest of equals. ``taken`` is a mask of compute
    slots. Source: the comments of open-gpu-kernel-modules on compute instances.
    """
    every = [place.mask for each in profile.compute for place in each.placements]
    free = [place for place in kind.placements if not place.mask & taken]
    return min(free, key=lambda p: (-sum(not m & (taken | p.mask) for m in every), p.start), default=None)


def _changes_with_placements(
    profile: Profile, by_slot: Mapping[Slot, ComputeInstance], slots: Sequence[Slot]
) -> Iterator[ComputeChange]:
    """Yield the change to these slots by a driver that accepts placements."""
    table = {c.id: c for c in profile.compute}
    create = sorted(set(slots) - by_slot.keys(), key=lambda s: (-table[s[0]].size, s[1]))
    destroy = tuple(c for key, c in sorted(by_slot.items()) if key not in slots)
    yield ComputeChange(destroy, tuple(_part(profile, table[i], start) for i, start in create))


def _changes_without_placements(
    profile: Profile, by_slot: Mapping[Slot, ComputeInstance], slots: Sequence[Slot]
) -> Iterator[ComputeChange]:
    """Yield the changes to these slots by a driver that chooses placements itself.

    A compute instance that could stay may have to be destroyed, so that another gets the right slot.
    """
    stay = sorted(by_slot.keys() & set(slots))
    for retained in (each for size in range(len(stay), -1, -1) for each in combinations(stay, size)):
        create = _creation_order(profile, set(slots) - set(retained), sum(by_slot[key].place.mask for key in retained))
        if create is not None:
            destroy = tuple(c for key, c in sorted(by_slot.items()) if key not in retained)
            yield ComputeChange(destroy, tuple(ComputePart(c.name, c.id) for c in create))


def _creation_order(profile: Profile, create: Collection[Slot], taken: int) -> list[ComputeProfile] | None:
    """Return the order of creations in which the driver chooses exactly these slots. None if there is none."""
    if not create:
        return []
    for kind in profile.compute:
        place = driver_choice(profile, kind, taken)
        if place is None or (kind.id, place.start) not in create:
            continue
        rest = _creation_order(profile, [s for s in create if s != (kind.id, place.start)], taken | place.mask)
        if rest is not None:
            return [kind, *rest]
    return None


def _part(profile: Profile, ci: ComputeProfile, start: int) -> ComputePart:
    whole = ci.id == profile.default_compute.id
    return ComputePart(ci.name, ci.id, None if whole else str(Placement(start, ci.size)))


def _layouts(table: dict[int, ComputeProfile], layout: Sequence[int]) -> list[tuple[Slot, ...]]:
    """Return every way to give the wanted compute profiles distinct slots, lowest slots first."""
    groups = [(i, list(layout).count(i)) for i in sorted(set(layout), key=lambda i: -table[i].size)]
    partial: list[tuple[Slot, ...]] = [()]
    for i, n in groups:
        partial = [
            done + tuple((i, s) for s in chosen)
            for done in partial
            for chosen in combinations(table[i].starts, n)
            if _legal(table, done + tuple((i, s) for s in chosen))
        ]
    return partial


def _legal(table: dict[int, ComputeProfile], slots: Sequence[Slot]) -> bool:
    mask = 0
    for i, start in slots:
        if start not in table[i].starts:
            return False
        m = Placement(start, table[i].size).mask
        if m & mask:
            return False
        mask |= m
    return True
