"""The smallest removal that makes space for the instances to add."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import product

import msgspec

from aliquot.core.model.desired import DesiredInstance
from aliquot.core.model.geometry import geometry_text
from aliquot.core.model.inventory import GpuInstance
from aliquot.core.planner.change_distribution import (
    ChangeCandidate,
    grown_shares,
    kind_sizes,
    picked,
)
from aliquot.core.planner.compute_grouping import groupings, is_placeable
from aliquot.core.planner.placement_search import Cost
from aliquot.core.planner.share_search import Share, cheapest_shares


class Removal(msgspec.Struct, frozen=True):
    """Instances to remove."""

    profiles: Counter[str]
    held: tuple[GpuInstance, ...] = ()
    """Those of them that are held."""

    def __str__(self) -> str:
        """Return ``it fits once 1g.10gb:2 is removed``, with the holders."""
        held = [", ".join([f"{i.profile} at {i.placement}", *map(str, i.holders)]) for i in self.held]
        which = f", of which these are held: {'; '.join(held)}" if held else ""
        return f"it fits once {geometry_text(self.profiles)} is removed{which}"


def smallest_removal(candidates: Sequence[ChangeCandidate], add: Share) -> Removal | None:
    """Return the removal after which ``add`` fits, None if removing other profiles does not help.

    It removes no held instance if possible, then the fewest instances, then the fewest compute slices. Held instances
    that stay do not move.
    """
    weights = list(zip(*kind_sizes(candidates), strict=True))
    found = cheapest_shares([_shares(candidate, add) for candidate in candidates], add, weights)
    if found is None:
        return None
    profiles = Counter(instance.profile for removed in found for instance in removed)
    return Removal(profiles, tuple(instance for removed in found for instance in removed if instance.held))


def _shares(candidate: ChangeCandidate, add: Share) -> dict[Share, tuple[Cost, tuple[GpuInstance, ...]]]:
    """Return the shares that a GPU can take after a removal, with the smallest removal for each."""
    table, best = candidate.table, dict[Share, tuple[Cost, tuple[GpuInstance, ...]]]()
    loose = {kind.profile_id for kind in candidate.add if kind and kind.loose}
    present = [
        i for i in candidate.gpu.instances if i.compute_instances
    ]  # others are destroyed if they block something
    for removed in _removals(candidate, present):
        rest = [_request(candidate, i, loose) for i in present if i not in removed]
        profiles = [table.profiles[i.profile_id] for i in removed]
        cost = sum(i.held for i in removed), len(removed), sum(p.compute_slices for p in profiles)

        def fits(share: Share, rest: Sequence[DesiredInstance] = rest) -> bool | None:
            more = picked(candidate.add, share)
            return True if more is not None and is_placeable(table, groupings(table, (*rest, *more))[0]) else None

        for share, _ in grown_shares(add, fits):
            if share not in best or cost < best[share][0]:
                best[share] = cost, removed
    return best


def _removals(candidate: ChangeCandidate, present: Sequence[GpuInstance]) -> Iterator[tuple[GpuInstance, ...]]:
    """Yield every choice of instances to remove, by profile; idle instances of a profile are equivalent.

    Removing an instance of a profile does not help to add one of the same profile, so these are not removed.
    """
    added = {kind.profile_id for kind in candidate.add if kind and not kind.loose}
    alike: dict[tuple[int, int | None], list[GpuInstance]] = {}
    for instance in present:
        if _is_whole(candidate, instance) and instance.profile_id not in added:
            alike.setdefault((instance.profile_id, instance.id if instance.held else None), []).append(instance)
    for counts in product(*(range(len(each) + 1) for each in alike.values())):
        yield tuple(i for each, n in zip(alike.values(), counts, strict=True) for i in each[:n])


def _is_whole(candidate: ChangeCandidate, instance: GpuInstance) -> bool:
    profile = candidate.table.profiles.get(instance.profile_id)
    return profile is not None and [c.profile_id for c in instance.compute_instances] == [profile.default_compute.id]


def _request(candidate: ChangeCandidate, instance: GpuInstance, loose: Collection[int]) -> DesiredInstance:
    """Return an instance that stays as a request: at its placement if it is held, else anywhere."""
    inside = tuple(c.profile_id for c in instance.compute_instances)
    start = instance.place.start if instance.held else None
    shared = instance.profile_id in loose and not _is_whole(candidate, instance)
    return DesiredInstance(instance.profile_id, instance.profile, inside, start, loose=shared)
