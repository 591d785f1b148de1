"""The target of one GPU: which placed geometry to aim for, and what stays on the way there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import msgspec

from aliquot.core.model.desired import InstanceWish
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.compute_grouping import groupings
from aliquot.core.planner.placement_table import Board, Placed

Layout = tuple[tuple[int, ...], tuple[int, ...] | None]
"""Compute profile ids of one GPU instance, and their slots if those were asked."""

WORST: pack.Cost = (1 << 30,)


class Aim(msgspec.Struct, frozen=True):
    """The wanted end state of one GPU. ``changes`` says what happens inside each instance that stays, ``layouts``
    which compute instances each new one gets.
    """

    placed: tuple[Placed, ...]
    kept: dict[Placed, GpuInstance]
    doomed: tuple[GpuInstance, ...]
    changes: dict[Placed, compute.ComputeChange]
    layouts: dict[Placed, Layout]


def key(instance: GpuInstance) -> Placed:
    """An instance as the search knows it."""
    return instance.profile_id, instance.place.start


class Grouping(msgspec.Struct, frozen=True):
    """One way to group the compute instances of a request: how many GPU instances of each profile there are, and the
    layouts that they get, at requested placements (``pinned``) or anywhere (``free``, by profile).
    """

    counts: Counter[int]
    pinned: dict[Placed, Layout]
    free: dict[int, list[Layout]]

    @classmethod
    def of(cls, wishes: Sequence[InstanceWish]) -> Grouping:
        """Return the grouping of wishes that have settled theirs."""
        pinned, free = dict[Placed, Layout](), dict[int, list[Layout]]()
        for wish in wishes:
            compute_ids = wish.compute if wish.compute_starts is not None else tuple(sorted(wish.compute))
            layout = compute_ids, wish.compute_starts
            if wish.start is None:
                free.setdefault(wish.profile_id, []).append(layout)
            else:
                pinned[wish.profile_id, wish.start] = layout
        return cls(Counter(w.profile_id for w in wishes), pinned, free)


class Search:
    """The wish for one GPU against what is on it."""

    def __init__(self, board: Board, gpu: Gpu, wishes: Sequence[InstanceWish]) -> None:
        self.board = board
        self.gpu = gpu
        self.fixed = frozenset((w.profile_id, w.start) for w in wishes if w.start is not None)
        self.present = {key(i): i for i in gpu.instances}
        self._groupings = [Grouping.of(each) for each in groupings(board, wishes)]
        self._cache: dict[tuple[Placed, Layout], compute.ComputeChange | None] = {}

    def aim(self) -> Aim | None:
        """The end state that destroys the least: held instances first, then the fewest instances, then the fewest
        compute instances; among equals the fewest new instances, the most room left, then the driver's own choice.
        None if nothing fits.
        """
        found = [(grouping, best) for grouping in self._groupings if (best := self._best(grouping)) is not None]
        if not found:
            return None
        grouping, (_, placed) = min(found, key=lambda item: item[1][0])
        return self._describe(grouping, placed)

    def _best(self, grouping: Grouping) -> tuple[pack.Cost, tuple[Placed, ...]] | None:
        return pack.best(
            self.board,
            grouping.counts,
            tuple(grouping.pinned),
            lambda leaf: self._cost(grouping, leaf),
            self.present.__contains__,
            bool(self.gpu.swapped),
        )

    def _cost(self, grouping: Grouping, leaf: tuple[Placed, ...]) -> pack.Cost:
        target = set(leaf)
        doomed = [i for k, i in self.present.items() if k not in target]
        inside = self._assignment(grouping, leaf)[0]
        if inside is WORST:
            return WORST
        held = sum(i.held for i in doomed) + inside[0]
        new = sum(k not in self.present for k in leaf)
        return held, len(doomed), inside[1], new, inside[2]

    def _change(self, place: Placed, layout: Layout) -> compute.ComputeChange | None:
        """What giving this layout to a kept instance takes."""
        if (place, layout) not in self._cache:
            profile = self.board.profiles[place[0]]
            present = self.present[place].compute_instances
            self._cache[place, layout] = compute.change(profile, present, *layout)
        return self._cache[place, layout]

    def _assignment(self, grouping: Grouping, leaf: tuple[Placed, ...]) -> tuple[pack.Cost, dict[Placed, Layout]]:
        """Which layout goes to which place so that the least changes inside kept instances."""
        total = [0, 0, 0]
        chosen = dict(grouping.pinned)
        for place, layout in grouping.pinned.items():
            if not self._add(total, place, layout):
                return WORST, {}
        for profile_id, layouts in grouping.free.items():
            places = [k for k in leaf if k[0] == profile_id and k not in grouping.pinned]
            best: tuple[list[int], tuple[Layout, ...]] | None = None
            for order in _orders(layouts):
                weight = [0, 0, 0]
                fine = all(self._add(weight, place, layout) for place, layout in zip(places, order, strict=True))
                if fine and (best is None or weight < best[0]):
                    best = weight, order
            if best is None:
                return WORST, {}
            total = [a + b for a, b in zip(total, best[0], strict=True)]
            chosen.update(zip(places, best[1], strict=True))
        return tuple(total), chosen

    def _add(self, total: list[int], place: Placed, layout: Layout) -> bool:
        if place in self.present:
            change = self._change(place, layout)
            if change is None:
                return False
            for n, w in enumerate(change.weight):
                total[n] += w
        return True

    def _describe(self, grouping: Grouping, placed: tuple[Placed, ...]) -> Aim | None:
        cost, layouts = self._assignment(grouping, placed)
        if cost is WORST:
            return None
        kept = {k: self.present[k] for k in placed if k in self.present}
        changes = {k: self._change(k, layouts[k]) for k in kept}
        return Aim(
            placed=placed,
            kept=kept,
            doomed=tuple(i for k, i in self.present.items() if k not in kept),
            changes={k: c for k, c in changes.items() if c is not None and (c.destroy or c.create)},
            layouts=layouts,
        )


def _orders(layouts: list[Layout]) -> list[tuple[Layout, ...]]:
    """The distinct orders of some layouts: usually one, since most wishes ask for whole instances."""
    if len(set(layouts)) == 1:
        return [tuple(layouts)]
    return sorted(set(permutations(layouts)), key=repr)
