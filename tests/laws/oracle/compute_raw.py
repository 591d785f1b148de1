"""Brute-force oracle for compute instances: it tries every way to divide GPU instances among them. Like ``raw``, it
reads the reviewed tables and imports nothing of Aliquot.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import combinations

from laws.oracle import raw
from laws.oracle.raw import Placed

Inner = frozenset[tuple[str, int]]
"""The compute instances of one GPU instance: (name, first slot)."""
Node = dict[Placed, Inner]
Device = tuple[str, str]
"""(GPU instance profile, compute instance name)."""
Cost = tuple[int, int, int, int]
"""Held devices destroyed, GPU instances destroyed, compute instances destroyed in others, GPU instances created."""
NOTHING: Cost = (0, 0, 0, 0)


@cache
def inners(family: str, profile: str) -> tuple[Inner, ...]:
    """Return every set of compute instances that one GPU instance can hold, including the empty set."""
    row = next(p for p in raw.table(family)["profiles"] if p["name"] == profile)
    rows = {c["name"]: c for c in row["compute_instances"]}
    singles = [(name, start) for name, c in rows.items() for start in c["placements"]["starts"]]
    found = []
    for size in range(row["compute_slices"] + 1):
        for chosen in combinations(singles, size):
            slots = [start + n for name, start in chosen for n in range(rows[name]["placements"]["size"])]
            counts = Counter(name for name, _ in chosen)
            if (
                len(slots) == len(set(slots))
                and sum(rows[name]["compute_slices"] for name, _ in chosen) <= row["compute_slices"]
                and all(n <= rows[name]["max_instances"] for name, n in counts.items())
            ):
                found.append(frozenset(chosen))
    return tuple(found)


@cache
def contents(family: str, profile: str) -> dict[tuple[str, ...], tuple[Inner, ...]]:
    """Return the same sets by names, without the empty one."""
    found: dict[tuple[str, ...], list[Inner]] = {}
    for inner in inners(family, profile):
        if inner:
            found.setdefault(tuple(sorted(name for name, _ in inner)), []).append(inner)
    return {names: tuple(each) for names, each in found.items()}


@cache
def by_profiles(family: str) -> dict[frozenset[str], tuple[raw.State, ...]]:
    found: dict[frozenset[str], list[raw.State]] = {}
    for state in raw.states(family):
        found.setdefault(frozenset(name for name, _ in state), []).append(state)
    return {names: tuple(each) for names, each in found.items()}


def least(
    family: str, now: Node, held: frozenset[tuple[Placed, tuple[str, int]]], wanted: Counter[Device]
) -> Cost | None:
    """Return the cost of the cheapest end state with exactly these devices, or None if no such state exists."""
    costs = [
        cost
        for state in by_profiles(family).get(frozenset(profile for profile, _ in wanted), ())
        if (cost := _cost(family, state, now, held, wanted)) is not None
    ]
    return min(costs, default=None)


def _cost(
    family: str,
    state: raw.State,
    now: Node,
    held: frozenset[tuple[Placed, tuple[str, int]]],
    wanted: Counter[Device],
) -> Cost | None:
    gone = now.keys() - state
    total: Cost = (len({place for place, _ in held} & gone), len(gone), 0, len(state - now.keys()))
    for profile in {profile for profile, _ in wanted}:
        places = sorted(place for place in state if place[0] == profile)
        parts = Counter({name: n for (of, name), n in wanted.items() if of == profile})
        best = min(_shared(family, places, parts, now, held), default=None)
        if best is None:
            return None
        total = _sum(total, best)
    return total


def _shared(
    family: str,
    places: list[Placed],
    parts: Counter[str],
    now: Node,
    held: frozenset[tuple[Placed, tuple[str, int]]],
) -> Iterator[Cost]:
    """Yield the cost of every way to distribute the parts over instances at these places, with at least one part in
    each.
    """
    if not places:
        if not parts:
            yield NOTHING
        return
    place, rest = places[0], places[1:]
    for names, choices in contents(family, place[0]).items():
        if Counter(names) <= parts:
            here = NOTHING
            if place in now:
                lost = (now[place] - inner for inner in choices)
                here = min((sum((place, c) in held for c in each), 0, len(each), 0) for each in lost)
            for others in _shared(family, rest, parts - Counter(names), now, held):
                yield _sum(here, others)


def _sum(a: Cost, b: Cost) -> Cost:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3]


def chosen(family: str, profile: str, now: Inner, name: str) -> int | None:
    """Return the slot at which the driver creates a compute instance by itself: the one that leaves the most choices,
    the lowest of equals. None if it does not fit.
    """
    row = next(p for p in raw.table(family)["profiles"] if p["name"] == profile)
    rows = {c["name"]: c for c in row["compute_instances"]}

    def slots(each: str, start: int) -> set[int]:
        return set(range(start, start + rows[each]["placements"]["size"]))

    taken = {slot for each, start in now for slot in slots(each, start)}
    best: tuple[int, int] | None = None
    for start in sorted(rows[name]["placements"]["starts"]):
        mine = slots(name, start)
        if mine & taken:
            continue
        left = sum(not slots(c, s) & (taken | mine) for c, r in rows.items() for s in r["placements"]["starts"])
        if best is None or left > best[0]:
            best = left, start
    return None if best is None else best[1]


def fewest_destroyed(family: str, profile: str, now: Inner, target: Inner, exact: bool) -> int | None:
    """Return the fewest compute instances to destroy so that creations without placements lead to the target. Unless
    ``exact``, the same names at any slots suffice. None if no order of creations reaches it, not even in an empty GPU
    instance.
    """
    legal = set(inners(family, profile))
    wanted = Counter(name for name, _ in target)

    def reached(kept: Inner) -> bool:
        left = wanted - Counter(name for name, _ in kept)
        if not left:
            return kept == target if exact else kept in legal
        for name in left:
            start = chosen(family, profile, kept, name)
            if start is not None and (kept | {(name, start)}) in legal and reached(kept | {(name, start)}):
                return True
        return False

    for gone in range(len(now) + 1):
        for kept in map(frozenset, combinations(sorted(now), len(now) - gone)):
            if not Counter(name for name, _ in kept) - wanted and reached(kept):
                return gone
    return None
