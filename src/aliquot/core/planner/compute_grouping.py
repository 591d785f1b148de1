"""Which GPU instances compute instances share, where only the compute instances were asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations, product

from aliquot.core.model.catalog import Profile
from aliquot.core.model.desired import InstanceWish
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner.placement_table import Board
from aliquot.core.planner.rules import allowed

_Part = tuple[int, int]
"""A compute profile id, and the memory slice at which its GPU instance starts (-1 for any)."""
_Group = tuple[_Part, ...]


def groupings(board: Board, wishes: Sequence[InstanceWish]) -> list[tuple[InstanceWish, ...]]:
    """Return every way to share GPU instances out among the loose wishes' compute instances, as wishes of which none is
    loose, fewest GPU instances first. Only ways whose profiles may be together; the wishes as they are if none may.
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
    legal = [each for each in found if _apart(each) and allowed(board, Counter(wish.profile_id for wish in each))]
    return sorted(legal, key=len) or [tuple(wishes)]


def _apart(wishes: Sequence[InstanceWish]) -> bool:
    """Whether no two are asked at one placement."""
    pinned = [(wish.profile_id, wish.start) for wish in wishes if wish.start is not None]
    return len(pinned) == len(set(pinned))


def _slices(board: Board, pools: Mapping[int, Sequence[_Part]]) -> int:
    """The compute slices of all parts. More than the GPU has would be many ways, of which none is possible."""
    parts = [board.profiles[p].compute_profile(part) for p, pool in pools.items() for part, _ in pool]
    return sum(part.compute_slices for part in parts if part)


def _ways(profile: Profile, parts: list[_Part]) -> list[tuple[_Group, ...]]:
    return sorted(_partitions(profile, tuple(parts), profile.max_instances), key=lambda way: (len(way), way))


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
