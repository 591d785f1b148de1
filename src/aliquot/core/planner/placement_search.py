"""Exact placement search: every legal way to place a multiset of profiles, and the best of them.

The spaces are small (2,318 placed states at most in any family), so the search is complete and its answer is proven,
not estimated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

from aliquot.core.planner.placement_table import Board, Placed
from aliquot.core.planner.rules import Counts, allowed

Cost = tuple[int, ...]


def arrangements(board: Board, counts: Counts, fixed: Sequence[Placed] = ()) -> Iterator[tuple[Placed, ...]]:
    """Every placed geometry with these counts that contains ``fixed``. Counts include the fixed ones.

    The counts themselves must be legal (``rules.allowed``); only overlap is decided here.
    """
    mask = 0
    for key in fixed:
        m = board.masks.get(key)
        if m is None or m & mask:
            return
        mask |= m
    pinned = Counter(profile_id for profile_id, _ in fixed)
    todo = [(p, counts[p] - pinned[p]) for p in board.canonical(p for p, n in counts.items() if n)]
    if any(n < 0 for _, n in todo):
        return
    yield from _place(board, [(p, n) for p, n in todo if n], mask, tuple(fixed))


def _place(
    board: Board, todo: list[tuple[int, int]], mask: int, done: tuple[Placed, ...]
) -> Iterator[tuple[Placed, ...]]:
    if not todo:
        yield done
        return
    (profile_id, n), rest = todo[0], todo[1:]
    masks = board.masks
    free = [s for s in board.starts[profile_id] if not masks[profile_id, s] & mask]
    for starts in combinations(free, n):
        taken = mask
        for start in starts:
            m = masks[profile_id, start]
            if taken & m:
                break
            taken |= m
        else:
            yield from _place(board, rest, taken, done + tuple((profile_id, s) for s in starts))


def best(
    board: Board,
    counts: Counts,
    fixed: Sequence[Placed],
    cost: Callable[[tuple[Placed, ...]], Cost],
    kept: Callable[[Placed], bool],
    swapped: bool,
) -> tuple[Cost, tuple[Placed, ...]] | None:
    """The arrangement of least cost; among equals the one with most room left, then the one that the driver itself
    would choose beside what is kept. With its cost, which includes the room. None if there is no arrangement.
    """
    lowest: tuple[int, ...] | None = None
    equal: list[tuple[Placed, ...]] = []
    for leaf in arrangements(board, counts, fixed):
        key = (*cost(leaf), -board.room(board.mask(leaf)))
        if lowest is None or key < lowest:
            lowest, equal = key, [leaf]
        elif key == lowest:
            equal.append(leaf)
    return None if lowest is None else (lowest, as_driver_would(board, equal, kept, swapped))


def as_driver_would(
    board: Board, equal: list[tuple[Placed, ...]], kept: Callable[[Placed], bool], swapped: bool
) -> tuple[Placed, ...]:
    """Of several placed geometries with the same profiles, the one that the driver comes to when it is asked for the
    new instances widest first without placements (or the closest to it).
    """
    candidates = [frozenset(leaf) for leaf in equal]
    if len(candidates) > 1:
        by_kept: dict[frozenset[Placed], list[frozenset[Placed]]] = {}
        for leaf in candidates:
            by_kept.setdefault(frozenset(k for k in leaf if kept(k)), []).append(leaf)
        stays = min(by_kept, key=lambda k: sorted(k))
        candidates = by_kept[stays]
        mask = board.mask(stays)
        for profile_id in board.canonical(p for p, _ in candidates[0] - stays):
            for start in board.choices(profile_id, mask, swapped):
                having = [leaf for leaf in candidates if (profile_id, start) in leaf]
                if having:
                    candidates = having
                    mask |= board.masks[profile_id, start]
                    break
    chosen = candidates[0]
    return next(leaf for leaf in equal if frozenset(leaf) == chosen)


def creation_order(board: Board, new: Iterable[Placed], mask: int, swapped: bool) -> list[Placed]:
    """The new instances in the order in which the driver would have been asked for them: widest first."""
    left = set(new)
    order: list[Placed] = []
    for profile_id in board.canonical(p for p, _ in left):
        start = next(s for s in board.choices(profile_id, mask, swapped) if (profile_id, s) in left)
        left.discard((profile_id, start))
        order.append((profile_id, start))
        mask |= board.masks[profile_id, start]
    return order


def fits_beside(board: Board, placed: Sequence[Placed], profile_id: int) -> list[int]:
    """The starts at which one more instance of a profile is legal beside what is placed."""
    counts = Counter(p for p, _ in placed)
    counts[profile_id] += 1
    if not allowed(board, counts):
        return []
    mask = board.mask(k for k in placed if k in board.masks)
    return [s for s in board.starts[profile_id] if not board.masks[profile_id, s] & mask]


def nearest(board: Board, wanted: Counts, pinned: Sequence[Placed] = ()) -> Counter[int] | None:
    """The legal multiset closest to an impossible one that still contains ``pinned``: it grants the most of what was
    wanted, then has the closest number of instances, then of compute slices. None if not even the pinned ones are
    legal.
    """
    slices = {p.id: p.compute_slices for p in board.family.profiles}
    total = sum(slices.get(p, 0) * n for p, n in wanted.items())

    def distance(counts: Counter[int]) -> tuple[int, int, int, list[tuple[int, int]]]:
        lost = sum(max(0, n - counts[p]) for p, n in wanted.items())
        width = sum(slices[p] * n for p, n in counts.items())
        return lost, abs(sum(wanted.values()) - counts.total()), abs(total - width), sorted(counts.items())

    return min(_multisets(board, pinned), key=distance, default=None)


def _multisets(board: Board, pinned: Sequence[Placed]) -> list[Counter[int]]:
    """Every legal multiset that contains ``pinned`` at its place, grown one instance at a time (what is legal stays
    legal when an instance is taken away).
    """
    where = tuple(sorted(pinned))
    known = board.multisets.get(where)
    if known is not None:
        return known
    start = Counter(p for p, _ in pinned)
    found = [start] if allowed(board, start) else []
    ids = list(board.starts)
    frontier = [(start, 0)] if found else []
    while frontier:
        counts, first = frontier.pop()
        for n in range(first, len(ids)):
            bigger = counts + Counter((ids[n],))
            if allowed(board, bigger) and next(arrangements(board, bigger, where), None) is not None:
                found.append(bigger)
                frontier.append((bigger, n))
    board.multisets[where] = found
    return found
