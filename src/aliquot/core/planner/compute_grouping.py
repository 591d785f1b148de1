"""Which GPU instances compute instances share, where only the compute instances were asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product

from aliquot.core.model.catalog import Profile
from aliquot.core.model.desired import InstanceWish
from aliquot.core.model.inventory import GpuInstance
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner.placement_search import arrangements
from aliquot.core.planner.placement_table import Board
from aliquot.core.planner.rules import allowed

_Part = tuple[int, int]
"""A compute profile id, and the memory slice at which its GPU instance starts (-1 for any)."""
_Group = tuple[_Part, ...]


def groupings(board: Board, wishes: Sequence[InstanceWish]) -> list[tuple[InstanceWish, ...]]:
    """Return every way to share GPU instances out among the loose wishes' compute instances, as wishes of which none is
    loose, fewest GPU instances first. Only ways that have a placement; the wishes as they are if there is none.
    """
    pools: dict[int, list[_Part]] = {}
    for wish in wishes:
        if wish.loose:
            start = -1 if wish.start is None else wish.start
            pools.setdefault(wish.profile_id, []).extend((part, start) for part in wish.compute)
    profiles = board.profiles
    if not pools or not pools.keys() <= profiles.keys() or _slices(board, pools) > board.family.compute_slices:
        return [tuple(wishes)]
    rest = tuple(wish for wish in wishes if not wish.loose)
    ways = ([_wishes(profiles[p], way) for way in _ways(profiles[p], sorted(pool))] for p, pool in pools.items())
    found = [(*rest, *(wish for part in chosen for wish in part)) for chosen in product(*ways)]
    return sorted((way for way in found if _placeable(board, way)), key=len) or [tuple(wishes)]


def same_instances(wishes: Sequence[InstanceWish], instances: Sequence[GpuInstance]) -> bool:
    """Whether as many GPU instances of each profile are there as were asked for; of profiles with loose wishes, as many
    compute instances of each kind.
    """
    loose = {wish.profile_id for wish in wishes if wish.loose}
    asked = Counter(_counted(loose, ((wish.profile_id, wish.compute) for wish in wishes)))
    there = ((i.profile_id, [c.profile_id for c in i.compute_instances]) for i in instances)
    return asked == Counter(_counted(loose, there))


def _counted(loose: Collection[int], instances: Iterable[tuple[int, Sequence[int]]]) -> Iterator[tuple[int, int]]:
    for profile_id, parts in instances:
        yield from ((profile_id, part) for part in (parts if profile_id in loose else (-1,)))


def _placeable(board: Board, wishes: Sequence[InstanceWish]) -> bool:
    counts = Counter(wish.profile_id for wish in wishes)
    fixed = [(wish.profile_id, wish.start) for wish in wishes if wish.start is not None]
    return allowed(board, counts) and next(arrangements(board, counts, fixed), None) is not None


def _slices(board: Board, pools: Mapping[int, Sequence[_Part]]) -> int:
    """The compute slices of all parts. More than the GPU has would be many ways, of which none is possible."""
    parts = [board.profiles[p].compute_profile(part) for p, pool in pools.items() for part, _ in pool]
    return sum(part.compute_slices for part in parts if part)


def _ways(profile: Profile, parts: list[_Part]) -> list[tuple[_Group, ...]]:
    return sorted(_partitions(profile, tuple(parts), profile.max_instances))


def _partitions(profile: Profile, parts: tuple[_Part, ...], most: int) -> set[tuple[_Group, ...]]:
    """Every way to put compute instances into ``most`` GPU instances of a profile or fewer."""
    if not parts:
        return {()}
    found: set[tuple[_Group, ...]] = set()
    for size in range(len(parts) if most else 0):
        for chosen in set(combinations(parts[1:], size)):
            group = (parts[0], *chosen)
            if not _together(profile, group):
                continue
            left = tuple(sorted((Counter(parts) - Counter(group)).elements()))
            found |= {tuple(sorted((group, *others))) for others in _partitions(profile, left, most - 1)}
    return found


def _together(profile: Profile, group: _Group) -> bool:
    starts = {start for _, start in group} - {-1}
    return len(starts) < 2 and compute.fits(profile, [part for part, _ in group])


def _wishes(profile: Profile, way: tuple[_Group, ...]) -> tuple[InstanceWish, ...]:
    return tuple(
        InstanceWish(
            profile.id,
            profile.name,
            tuple(part for part, _ in group),
            next((start for _, start in group if start >= 0), None),
        )
        for group in way
    )
