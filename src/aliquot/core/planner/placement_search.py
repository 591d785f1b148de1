"""Exact placement search: every legal way to place a multiset of profiles, and the best of them.

The search spaces are small (2,318 placed states at most in any family), so the search is complete and its result is
proven, not estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable
from aliquot.core.planner.rules import Counts, allowed

Cost = tuple[int, ...]


def arrangements(
    table: PlacementTable, counts: Counts, fixed: Sequence[PlacedInstance] = ()
) -> Iterator[tuple[PlacedInstance, ...]]:
    """Yield every placed geometry with these counts that contains ``fixed``. Counts include the fixed ones.

    The counts must be legal (``rules.allowed``). Only overlap is checked here.
    """
    mask = 0
    for key in fixed:
        m = table.masks.get(key)
        if m is None or m & mask:
            return
        mask |= m
    pinned = Counter(profile_id for profile_id, _ in fixed)
    todo = [(p, counts[p] - pinned[p]) for p in table.canonical(p for p, n in counts.items() if n)]
    if any(n < 0 for _, n in todo):
        return
    yield from _place(table, [(p, n) for p, n in todo if n], mask, tuple(fixed))


def _place(
    table: PlacementTable, todo: list[tuple[int, int]], mask: int, done: tuple[PlacedInstance, ...]
) -> Iterator[tuple[PlacedInstance, ...]]:
    if not todo:
        yield done
        return
    (profile_id, n), rest = todo[0], todo[1:]
    masks = table.masks
    free = [s for s in table.starts[profile_id] if not masks[profile_id, s] & mask]
    for starts in combinations(free, n):
        taken = mask
        for start in starts:
            m = masks[profile_id, start]
            if taken & m:
                break
            taken |= m
        else:
            yield from _place(table, rest, taken, done + tuple((profile_id, s) for s in starts))


def best_arrangement(
    table: PlacementTable,
    counts: Counts,
    fixed: Sequence[PlacedInstance],
    cost: Callable[[tuple[PlacedInstance, ...]], Cost],
    is_retained: Callable[[PlacedInstance], bool],
    slots_mirrored: bool,
) -> tuple[Cost, tuple[PlacedInstance, ...]] | None:
    """Return the arrangement of least cost, with its cost including the headroom. None if no arrangement exists.

    Among equals it leaves the most headroom, then is the one that the driver itself would choose besides what is
    retained.
    """
    lowest: tuple[int, ...] | None = None
    equal: list[tuple[PlacedInstance, ...]] = []
    for arrangement in arrangements(table, counts, fixed):
        key = (*cost(arrangement), -table.headroom(table.mask(arrangement)))
        if lowest is None or key < lowest:
            lowest, equal = key, [arrangement]
        elif key == lowest:
            equal.append(arrangement)
    return None if lowest is None else (lowest, pick_as_driver(table, equal, is_retained, slots_mirrored))


def pick_as_driver(
    table: PlacementTable,
    equal: list[tuple[PlacedInstance, ...]],
    is_retained: Callable[[PlacedInstance], bool],
    slots_mirrored: bool,
) -> tuple[PlacedInstance, ...]:
    """Return the geometry that the driver would choose, or the closest to it, of several with the same profiles.

    It creates the new instances widest first, without placements.
    """
    candidates = [frozenset(arrangement) for arrangement in equal]
    if len(candidates) > 1:
        by_retained: dict[frozenset[PlacedInstance], list[frozenset[PlacedInstance]]] = {}
        for arrangement in candidates:
            by_retained.setdefault(frozenset(k for k in arrangement if is_retained(k)), []).append(arrangement)
        retained = min(by_retained, key=lambda k: sorted(k))
        candidates = by_retained[retained]
        mask = table.mask(retained)
        for profile_id in table.canonical(p for p, _ in candidates[0] - retained):
            for start in table.choices(profile_id, mask, slots_mirrored):
                having = [arrangement for arrangement in candidates if (profile_id, start) in arrangement]
                if having:
                    candidates = having
                    mask |= table.masks[profile_id, start]
                    break
    chosen = candidates[0]
    return next(arrangement for arrangement in equal if frozenset(arrangement) == chosen)


def creation_order(
    table: PlacementTable, new: Iterable[PlacedInstance], mask: int, slots_mirrored: bool
) -> list[PlacedInstance]:
    """Return the new instances in the order in which they would be created without placements: widest first."""
    left = set(new)
    order: list[PlacedInstance] = []
    for profile_id in table.canonical(p for p, _ in left):
        start = next(s for s in table.choices(profile_id, mask, slots_mirrored) if (profile_id, s) in left)
        left.discard((profile_id, start))
        order.append((profile_id, start))
        mask |= table.masks[profile_id, start]
    return order


def legal_starts(table: PlacementTable, placed: Sequence[PlacedInstance], profile_id: int) -> list[int]:
    """Return the starts at which one more instance of a profile is legal besides those placed."""
    counts = Counter(p for p, _ in placed)
    counts[profile_id] += 1
    if not allowed(table, counts):
        return []
    mask = table.mask(k for k in placed if k in table.masks)
    return [s for s in table.starts[profile_id] if not table.masks[profile_id, s] & mask]


def nearest(table: PlacementTable, wanted: Counts, pinned: Sequence[PlacedInstance] = ()) -> Counter[int] | None:
    """Return the legal multiset that contains ``pinned`` and is closest to an impossible one.

    It contains the most of ``wanted``, then has the closest number of instances, then of compute slices. None if not
    even the pinned ones are legal.
    """
    slices = {p.id: p.compute_slices for p in table.family.profiles}
    total = sum(slices.get(p, 0) * n for p, n in wanted.items())

    def distance(counts: Counter[int]) -> tuple[int, int, int, list[tuple[int, int]]]:
        lost = sum(max(0, n - counts[p]) for p, n in wanted.items())
        width = sum(slices[p] * n for p, n in counts.items())
        return lost, abs(sum(wanted.values()) - counts.total()), abs(total - width), sorted(counts.items())

    return min(_multisets(table, pinned), key=distance, default=None)


def _multisets(table: PlacementTable, pinned: Sequence[PlacedInstance]) -> list[Counter[int]]:
    """Return every legal multiset that contains ``pinned`` at its placements.

    Grows one instance at a time, because a legal multiset stays legal without one of its instances.
    """
    where = tuple(sorted(pinned))
    known = table.multisets.get(where)
    if known is not None:
        return known
    start = Counter(p for p, _ in pinned)
    found = [start] if allowed(table, start) else []
    ids = list(table.starts)
    frontier = [(start, 0)] if found else []
    while frontier:
        counts, first = frontier.pop()
        for n in range(first, len(ids)):
            bigger = counts + Counter((ids[n],))
            if allowed(table, bigger) and next(arrangements(table, bigger, where), None) is not None:
                found.append(bigger)
                frontier.append((bigger, n))
    table.multisets[where] = found
    return found
