"""Grouping of compute instances into GPU instances, if only compute instances were requested."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

from aliquot.core.model.catalog import Profile
from aliquot.core.model.desired import DesiredInstance
from aliquot.core.model.inventory import GpuInstance
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner.placement_search import arrangements
from aliquot.core.planner.placement_table import PlacementTable
from aliquot.core.planner.rules import allowed

_Part = tuple[int, int]
"""A compute profile id, and the memory slice at which its GPU instance starts (-1 for any)."""
_Group = tuple[_Part, ...]


def groupings(table: PlacementTable, requests: Sequence[DesiredInstance]) -> list[tuple[DesiredInstance, ...]]:
    """Return every way to group the compute instances of loose requests into GPU instances, fewest GPU instances first.

    The results contain no loose request, and each has a placement. If there is none, returns the requests unchanged.
    """
    pools: dict[int, list[_Part]] = {}
    for request in requests:
        if request.loose:
            start = -1 if request.start is None else request.start
            pools.setdefault(request.profile_id, []).extend((part, start) for part in request.compute)
    profiles = table.profiles
    if not pools or not pools.keys() <= profiles.keys() or _compute_slices(table, pools) > table.family.compute_slices:
        return [tuple(requests)]
    rest = tuple(request for request in requests if not request.loose)
    options = (
        [_requests(profiles[p], option) for option in _sorted_groups(profiles[p], sorted(pool))]
        for p, pool in pools.items()
    )
    found = [(*rest, *(request for part in chosen for request in part)) for chosen in product(*options)]
    return sorted((option for option in found if is_placeable(table, option)), key=len) or [tuple(requests)]


def same_instances(requests: Sequence[DesiredInstance], instances: Sequence[GpuInstance]) -> bool:
    """Report whether the GPU has as many instances of each profile as requested.

    For profiles with loose requests, compares the compute instances of each kind.
    """
    loose = {request.profile_id for request in requests if request.loose}
    requested = Counter(_countable(loose, ((request.profile_id, request.compute) for request in requests)))
    present = ((i.profile_id, [c.profile_id for c in i.compute_instances]) for i in instances)
    return requested == Counter(_countable(loose, present))


def _countable(loose: Collection[int], instances: Iterable[tuple[int, Sequence[int]]]) -> Iterator[tuple[int, int]]:
    for profile_id, parts in instances:
        yield from ((profile_id, part) for part in (parts if profile_id in loose else (-1,)))


def is_placeable(table: PlacementTable, requests: Sequence[DesiredInstance]) -> bool:
    """Report whether requests without loose ones can be placed together."""
    counts = Counter(request.profile_id for request in requests)
    fixed = [(request.profile_id, request.start) for request in requests if request.start is not None]
    return allowed(table, counts) and next(arrangements(table, counts, fixed), None) is not None


def _compute_slices(table: PlacementTable, pools: Mapping[int, Sequence[_Part]]) -> int:
    """Return the compute slices of all parts. Checked first, because too many would give many ways, none of them
    possible.
    """
    parts = [table.profiles[p].compute_profile(part) for p, pool in pools.items() for part, _ in pool]
    return sum(part.compute_slices for part in parts if part)


def _sorted_groups(profile: Profile, parts: list[_Part]) -> list[tuple[_Group, ...]]:
    return sorted(_all_groups(profile, tuple(parts), profile.max_instances))


def _all_groups(profile: Profile, parts: tuple[_Part, ...], max_instances: int) -> set[tuple[_Group, ...]]:
    """Return every way to put compute instances into at most ``max_instances`` GPU instances of a profile."""
    if not parts:
        return {()}
    found: set[tuple[_Group, ...]] = set()
    for size in range(len(parts) if max_instances else 0):
        for chosen in set(combinations(parts[1:], size)):
            group = (parts[0], *chosen)
            if not _fit_together(profile, group):
                continue
            left = tuple(sorted((Counter(parts) - Counter(group)).elements()))
            found |= {tuple(sorted((group, *others))) for others in _all_groups(profile, left, max_instances - 1)}
    return found


def _fit_together(profile: Profile, group: _Group) -> bool:
    starts = {start for _, start in group} - {-1}
    return len(starts) < 2 and compute.fits(profile, [part for part, _ in group])


def _requests(profile: Profile, groups: tuple[_Group, ...]) -> tuple[DesiredInstance, ...]:
    return tuple(
        DesiredInstance(
            profile.id,
            profile.name,
            tuple(part for part, _ in group),
            next((start for _, start in group if start >= 0), None),
        )
        for group in groups
    )
