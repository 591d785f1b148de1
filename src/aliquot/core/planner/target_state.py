"""The target state of one GPU: the placed geometry to reach, and what is retained."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from aliquot.core.model.desired import DesiredInstance
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner import compute_instances as compute
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.compute_grouping import groupings
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable

ComputeLayout = tuple[tuple[int, ...], tuple[int, ...] | None]
"""Compute profile ids of one GPU instance, and their slots if requested."""

WORST: pack.Cost = (1 << 30,)


class TargetState(msgspec.Struct, frozen=True):
    """The target state of one GPU."""

    placed: tuple[PlacedInstance, ...]
    retained: dict[PlacedInstance, GpuInstance]
    to_destroy: tuple[GpuInstance, ...]
    changes: dict[PlacedInstance, compute.ComputeChange]
    """Changes inside each instance that is retained."""
    layouts: dict[PlacedInstance, ComputeLayout]
    """The compute instances of each instance."""


def placed_key(instance: GpuInstance) -> PlacedInstance:
    """Return an instance as (profile id, start), the form that the search uses."""
    return instance.profile_id, instance.place.start


class Grouping(msgspec.Struct, frozen=True):
    """A way to group the compute instances of a request into GPU instances."""

    counts: Counter[int]
    """Number of GPU instances of each profile."""
    pinned: dict[PlacedInstance, ComputeLayout]
    """Layouts at requested placements."""
    free: dict[int, list[ComputeLayout]]
    """Layouts at any placement, by profile."""

    @classmethod
    def of(cls, requests: Sequence[DesiredInstance]) -> Grouping:
        """Return the grouping of requests without loose ones."""
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
    """Compares the request for one GPU with its present state.

    Nothing may stay or be created at the ``excluded`` placements.
    """

    def __init__(
        self,
        placement_table: PlacementTable,
        gpu: Gpu,
        requests: Sequence[DesiredInstance],
        excluded: frozenset[PlacedInstance] = frozenset(),
    ) -> None:
        self.placement_table = placement_table
        self.gpu = gpu
        self.excluded = excluded
        self.fixed = frozenset((w.profile_id, w.start) for w in requests if w.start is not None)
        self.present = {placed_key(i): i for i in gpu.instances}
        self._groupings = [Grouping.of(each) for each in groupings(placement_table, requests)]
        self._cache: dict[tuple[PlacedInstance, ComputeLayout], compute.ComputeChange | None] = {}
        self._weights: dict[tuple[PlacedInstance, ComputeLayout], tuple[int, int, int] | None] = {}

    def find_target(self) -> TargetState | None:
        """Return the target state that destroys the least. None if nothing fits.

        Held instances count first, then the number of instances, then of compute instances. Among equals it has the
        fewest new instances, then the most headroom, then the driver's own choice.
        """
        best = self.find_best()
        return None if best is None else best[1]

    def find_best(self) -> tuple[pack.Cost, TargetState] | None:
        """Return the same target state with its cost: a number for each criterion, the first decides."""
        found = [(grouping, best) for grouping in self._groupings if (best := self._best(grouping)) is not None]
        if not found:
            return None
        grouping, (cost, placed) = min(found, key=lambda item: item[1][0])
        return None if cost[0] == WORST[0] else (cost, self._describe(grouping, placed))

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
        if target & self.excluded:
            return WORST
        to_destroy = [i for k, i in self.present.items() if k not in target]
        inside = self._assignment(grouping, arrangement)[0]
        if inside is WORST:
            return WORST
        held = sum(i.held for i in to_destroy) + inside[0]
        new = sum(k not in self.present for k in arrangement)
        return held, len(to_destroy), inside[1], new, inside[2]

    def _change(self, place: PlacedInstance, layout: ComputeLayout) -> compute.ComputeChange | None:
        """Return the change that gives this layout to a retained instance."""
        if (place, layout) not in self._cache:
            profile = self.placement_table.profiles[place[0]]
            present = self.present[place].compute_instances
            self._cache[place, layout] = compute.change(profile, present, *layout)
        return self._cache[place, layout]

    def _assignment(
        self, grouping: Grouping, arrangement: tuple[PlacedInstance, ...]
    ) -> tuple[pack.Cost, dict[PlacedInstance, ComputeLayout]]:
        """Assign layouts to placements so that the least changes inside retained instances."""
        chosen = dict(grouping.pinned)
        total = [self._weigh(chosen.items())]
        for profile_id, layouts in grouping.free.items():
            places = [k for k in arrangement if k[0] == profile_id and k not in grouping.pinned]
            orders = [(self._weigh(zip(places, order, strict=True)), order) for order in _orders(layouts)]
            weight, order = min(orders, key=lambda item: item[0])
            total.append(weight)
            chosen.update(zip(places, order, strict=True))
        return (WORST, {}) if WORST in total else (tuple(map(sum, zip(*total, strict=True))), chosen)

    def _weigh(self, layouts: Iterable[tuple[PlacedInstance, ComputeLayout]]) -> pack.Cost:
        """Sum the changes inside retained instances that give each its layout. WORST if one cannot get it."""
        held = destroyed = created = 0
        for key in layouts:
            if key not in self._weights:
                change = self._change(*key) if key[0] in self.present else compute.ComputeChange()
                self._weights[key] = None if change is None else change.weight
            weight = self._weights[key]
            if weight is None:
                return WORST
            held, destroyed, created = held + weight[0], destroyed + weight[1], created + weight[2]
        return held, destroyed, created

    def _describe(self, grouping: Grouping, placed: tuple[PlacedInstance, ...]) -> TargetState:
        layouts = self._assignment(grouping, placed)[1]
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
    """Return the distinct orders of some layouts. Usually one, since most requests are for whole instances."""
    if len(set(layouts)) == 1:
        return [tuple(layouts)]
    return _distinct_orders(sorted(Counter(layouts).items(), key=repr))


def _distinct_orders(counts: list[tuple[ComputeLayout, int]]) -> list[tuple[ComputeLayout, ...]]:
    if not counts:
        return [()]
    orders = []
    for n, (layout, count) in enumerate(counts):
        rest = [*counts[:n], *([(layout, count - 1)] if count > 1 else []), *counts[n + 1 :]]
        orders += [(layout, *order) for order in _distinct_orders(rest)]
    return orders
