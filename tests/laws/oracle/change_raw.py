"""Brute-force oracle for requests that add and remove: it tries every end state that satisfies them. Like ``raw``, it
reads the reviewed tables and imports nothing of Aliquot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product

from laws.oracle import raw
from laws.oracle.compute_raw import NOTHING, Cost, Device, Inner, Node, contents
from laws.oracle.raw import Placed, State

Names = tuple[str, ...]
"""The compute instances of one GPU instance, by name and sorted."""
Held = frozenset[tuple[Placed, tuple[str, int]]]
Total = tuple[int, ...]
"""Sums over all GPUs: held instances destroyed, MIG modes set, instances destroyed, GPUs changed, instances created,
placements of plain profiles that are no longer free.
"""


@cache
def whole(family: str, profile: str) -> Names:
    """Return the contents of a whole GPU instance: the compute instance with all of its compute slices."""
    row = next(p for p in raw.table(family)["profiles"] if p["name"] == profile)
    wide = (c["name"] for c in row["compute_instances"] if c["compute_slices"] == row["compute_slices"])
    return (next(wide),)


def least(family: str, now: Node, held: Held, add: Counter[Device], remove: Counter[Device]) -> Cost | None:
    """Return the cost of the cheapest end state of one GPU, or None if there is none.

    Each GPU instance keeps its compute instances together, except in profiles of which single compute instances were
    requested: there they may be grouped in any way. GPU instances without a compute instance count as whole ones if
    these are removed. They may be filled, and the end state never has more of them than now.
    """
    costs = [
        cost
        for groups, parts, empty in _targets(family, now, add, remove)
        for state in raw.states(family)
        if (cost := _cost(family, state, now, held, groups, parts, empty)) is not None
    ]
    return min(costs, default=None)


_Groups = Counter[tuple[str, Names]]


def _targets(
    family: str, now: Node, add: Counter[Device], remove: Counter[Device]
) -> Iterator[tuple[_Groups, Counter[Device], Counter[str]]]:
    """Yield the possible end states: GPU instances by profile and contents, compute instances that any GPU instance may
    hold, and how many GPU instances without any there may be.
    """
    loose = {profile for profile, name in [*add, *remove] if (name,) != whole(family, profile)}
    groups: _Groups = Counter()
    parts: Counter[Device] = Counter()
    empty: Counter[str] = Counter()
    for (profile, _), inner in now.items():
        names = tuple(sorted(name for name, _ in inner))
        if not names:
            empty[profile] += 1
        elif profile in loose and names != whole(family, profile):
            parts.update((profile, name) for name in names)
        else:
            groups[profile, names] += 1
    gone: Counter[str] = Counter()
    for sign, wanted in ((1, add), (-1, remove)):
        for (profile, name), n in wanted.items():
            if (name,) != whole(family, profile):
                parts[profile, name] += sign * n
            elif sign > 0:
                groups[profile, (name,)] += n
            else:
                gone[profile] += n
    profiles = sorted(gone)
    for split in product(*(range(min(gone[p], empty[p]) + 1) for p in profiles)):
        from_empty = Counter(dict(zip(profiles, split, strict=True)))
        left, fewer = groups.copy(), empty.copy()
        left.subtract({(p, whole(family, p)): gone[p] - from_empty[p] for p in profiles})
        fewer.subtract(from_empty)
        if min([*left.values(), *parts.values()], default=0) >= 0:
            yield +left, +parts, +fewer


def _cost(
    family: str, state: State, now: Node, held: Held, groups: _Groups, parts: Counter[Device], empty: Counter[str]
) -> Cost | None:
    needed, there = {p for p, _ in [*groups, *parts]}, {p for p, _ in state}
    if not needed <= there <= needed | set(empty):
        return None
    gone = now.keys() - state
    total: Cost = (len({place for place, _ in held} & gone), len(gone), 0, len(state - now.keys()))
    for profile in there:
        places = sorted(place for place in state if place[0] == profile)
        mine = Counter({names: n for (of, names), n in groups.items() if of == profile})
        single = Counter({name: n for (of, name), n in parts.items() if of == profile})
        best = min(_filled(family, places, mine, single, empty[profile], now, held), default=None)
        if best is None:
            return None
        total = _sum(total, best)
    return total


def _filled(
    family: str, places: list[Placed], groups: Counter[Names], parts: Counter[str], empty: int, now: Node, held: Held
) -> Iterator[Cost]:
    """Yield the cost of every way to put the contents into GPU instances at these places."""
    if not places:
        if not groups and not parts:
            yield NOTHING
        return
    place, rest = places[0], places[1:]
    if empty:
        for others in _filled(family, rest, groups, parts, empty - 1, now, held):
            yield _sum(_inside(place, (frozenset(),), now, held), others)
    for names, choices in contents(family, place[0]).items():
        here = _inside(place, choices, now, held)
        if names in groups:
            for others in _filled(family, rest, groups - Counter([names]), parts, empty, now, held):
                yield _sum(here, others)
        if Counter(names) <= parts:
            for others in _filled(family, rest, groups, parts - Counter(names), empty, now, held):
                yield _sum(here, others)


def _inside(place: Placed, choices: Sequence[Inner], now: Node, held: Held) -> Cost:
    if place not in now:
        return NOTHING
    lost = (now[place] - inner for inner in choices)
    return min((sum((place, c) in held for c in each), 0, len(each), 0) for each in lost)


def _sum(a: Cost, b: Cost) -> Cost:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


class Side:
    """A GPU of several, with whole instances only. ``now`` is None while MIG mode is off."""

    def __init__(self, family: str, now: State | None, held: State = frozenset()) -> None:
        self.family = family
        self.now = now
        self.held = held

    def cheapest(self, geometry: Counter[str]) -> Total | None:
        """Return the least cost of ending with exactly these instances."""
        now = self.now or frozenset()
        if self.now is None and not geometry:
            return (0,) * 6
        targets = raw.by_geometry(self.family).get(tuple(sorted(geometry.items())), ())
        costs = [
            (
                len(self.held - end),
                int(self.now is None),
                len(now - end),
                int(self.now is None or end != now),
                len(end - now),
                raw.room(self.family, now) - raw.room(self.family, end),
            )
            for end in targets
        ]
        return min(costs, default=None)


def least_of_all(
    sides: Sequence[Side], add: Counter[str], remove: Counter[str], *, replace: bool = False
) -> Total | None:
    """Return the least cost over every way to distribute the additions and removals over the GPUs. If ``replace`` is
    set, instances that were not requested are removed.
    """
    costs = [
        tuple(map(sum, zip(*each, strict=True)))
        for added in _shares(add, len(sides))
        for removed in _shares(remove, len(sides))
        if None not in (each := [_one(*one, replace) for one in zip(sides, added, removed, strict=True)])
    ]
    return min(costs, default=None)


def _one(side: Side, added: Counter[str], removed: Counter[str], replace: bool) -> Total | None:
    there = Counter() if replace else Counter(name for name, _ in side.now or ())
    if removed - there:
        return None
    return side.cheapest(there - removed + added)


def _shares(wanted: Counter[str], count: int) -> Iterator[list[Counter[str]]]:
    """Yield every way to distribute some profiles over this many GPUs."""
    names = sorted(wanted.elements())
    for where in product(range(count), repeat=len(names)):
        if all(a <= b for a, b, one, two in zip(where, where[1:], names, names[1:], strict=False) if one == two):
            shares = [Counter[str]() for _ in range(count)]
            for name, n in zip(names, where, strict=True):
                shares[n][name] += 1
            yield shares
