"""The target of one GPU: which placed geometry to aim for, and what stays on the way there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import permutations

import msgspec

from aliquot.core.model.desired import DesiredInstance
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.compute_grouping import groupings
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable

ComputeLayout = tuple[tuple[int, ...], tuple[int, ...] | None]
"""Compute profile ids of one GPU instance, and their slots if those were asked."""

WORST: pack.Cost = (1 << 30,)


class TargetState(msgspec.Struct, frozen=True):
    """The wanted end state of one GPU. ``changes`` says what happens inside each instance that stays, ``layouts``
    which compute instances each new one gets.
    """

    placed: tuple[PlacedInstance, ...]
    retained: dict[PlacedInstance, GpuInstance]
    to_destroy: tuple[GpuInstance, ...]
    changes: dict[PlacedInstance, compute.ComputeChange]
    layouts: dict[PlacedInstance, ComputeLayout]


def placed_key(instance: GpuInstance) -> PlacedInstance:
    """An instance as the search knows it."""
    return instance.profile_id, instance.place.start


class Grouping(msgspec.Struct, frozen=True):
    """One way to group the compute instances of a request: how many GPU instances of each profile there are, and the
    layouts that they get, at requested placements (``pinned``) or anywhere (``free``, by profile).
    """

    counts: Counter[int]
    pinned: dict[PlacedInstance, ComputeLayout]
    free: dict[int, list[ComputeLayout]]

    @classmethod
    def of(cls, requests: Sequence[DesiredInstance]) -> Grouping:
        """Return the grouping of wishes that have settled theirs."""
        pinned, free = dict[PlacedInstance, ComputeLayout](), dict[int, list[ComputeLayout]]()
        for request in requests:
            compute_ids = request.compute if request.compute_starts is not None else tuple(sorted(request.compute))
            layout = compute_ids, request.compute_starts
            if request.start is None:
                free.setdefault(request.profile_id, []).append(layout)
            else:
                pinned[request.profile_id, request.start] = layout
        return cls(Counter(w.profile_id for w in requests), pinned, free)


class TargetSearch:
    """The wish for one GPU against what is on it."""

    def __init__(self, placement_table: PlacementTable, gpu: Gpu, requests: Sequence[DesiredInstance]) -> None:
        self.placement_table = placement_table
        self.gpu = gpu
        self.fixed = frozenset((w.profile_id, w.start) for w in requests if w.start is not None)
        self.present = {placed_key(i): i for i in gpu.instances}
        self._groupings = [Grouping.of(each) for each in groupings(placement_table, requests)]
        self._cache: dict[tuple[PlacedInstance, ComputeLayout], compute.ComputeChange | None] = {}

    def find_target(self) -> TargetState | None:
        """The end state that destroys the least: held instances first, then the fewest instances, then the fewest
        compute instances; among equals the fewest new instances, the most room left, then the driver's own choice.
        None if nothing fits.
        """
        found = [(grouping, best) for grouping in self._groupings if (best := self._best(grouping)) is not None]
        if not found:
            return None
        grouping, (_, placed) = min(found, key=lambda item: item[1][0])
        return self._describe(grouping, placed)

    def _best(self, grouping: Grouping) -> tuple[pack.Cost, tuple[PlacedInstance, ...]] | None:
        return pack.best_arrangement(
            self.placement_table,
            grouping.counts,
            tuple(grouping.pinned),
            lambda arrangement: self._cost(grouping, arrangement),
            self.present.__contains__,
            bool(self.gpu.slots_mirrored),
        )

    def _cost(self, grouping: Grouping, arrangement: tuple[PlacedInstance, ...]) -> pack.Cost:
        target = set(arrangement)
        to_destroy = [i for k, i in self.present.items() if k not in target]
        inside = self._assignment(grouping, arrangement)[0]
        if inside is WORST:
            return WORST
        held = sum(i.held for i in to_destroy) + inside[0]
        new = sum(k not in self.present for k in arrangement)
        return held, len(to_destroy), inside[1], new, inside[2]

    def _change(self, place: PlacedInstance, layout: ComputeLayout) -> compute.ComputeChange | None:
        """What giving this layout to a kept instance takes."""
        if (place, layout) not in self._cache:
            profile = self.placement_table.profiles[place[0]]
            present = self.present[place].compute_instances
            self._cache[place, layout] = compute.change(profile, present, *layout)
        return self._cache[place, layout]

    def _assignment(
        self, grouping: Grouping, arrangement: tuple[PlacedInstance, ...]
    ) -> tuple[pack.Cost, dict[PlacedInstance, ComputeLayout]]:
        """Which layout goes to which place so that the least changes inside kept instances."""
        total = [0, 0, 0]
        chosen = dict(grouping.pinned)
        for place, layout in grouping.pinned.items():
            if not self._add(total, place, layout):
                return WORST, {}
        for profile_id, layouts in grouping.free.items():
            places = [k for k in arrangement if k[0] == profile_id and k not in grouping.pinned]
            best: tuple[list[int], tuple[ComputeLayout, ...]] | None = None
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

    def _add(self, total: list[int], place: PlacedInstance, layout: ComputeLayout) -> bool:
        if place in self.present:
            change = self._change(place, layout)
            if change is None:
                return False
            for n, w in enumerate(change.weight):
                total[n] += w
        return True

    def _describe(self, grouping: Grouping, placed: tuple[PlacedInstance, ...]) -> TargetState | None:
        cost, layouts = self._assignment(grouping, placed)
        if cost is WORST:
            return None
        retained = {k: self.present[k] for k in placed if k in self.present}
        changes = {k: self._change(k, layouts[k]) for k in retained}
        return TargetState(
            placed=placed,
            retained=retained,
            to_destroy=tuple(i for k, i in self.present.items() if k not in retained),
            changes={k: c for k, c in changes.items() if c is not None and (c.destroy or c.create)},
            layouts=layouts,
        )


def _orders(layouts: list[ComputeLayout]) -> list[tuple[ComputeLayout, ...]]:
    """The distinct orders of some layouts: usually one, since most wishes ask for whole instances."""
    if len(set(layouts)) == 1:
        return [tuple(layouts)]
    return sorted(set(permutations(layouts)), key=repr)
