"""The layout of several GPUs of one node that meets the most important demands and destroys the least.

A demand is a number of devices of some kinds, all of them together or none. Demands are sorted, most important first. A
later demand is met only with what all earlier ones leave. Per GPU every placed layout counts (2,319 at most), of which
only the cheapest for what it offers remains. ``count_search`` decides which of them the GPUs get together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate
from operator import ge

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.planner.count_search import CountSearch, GpuClass
from aliquot.core.planner.linear_program import Vector
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable, compiled_table
from aliquot.core.planner.rules import allowed

WHOLE_GPU = -1
"""Used as a profile id: the GPU with MIG disabled, as one device."""
Needs = Mapping[str, int]
"""Kind -> number of devices."""
Cost = tuple[int, ...]
PlacedGeometry = tuple[PlacedInstance, ...] | None
"""The instances of a GPU. None if MIG is disabled and the GPU is one device."""
_State = tuple[int, int, tuple[PlacedInstance, ...]]
"""Instances: which of a list of possible ones these are, as bits; their headroom; and what they are."""
Options = dict[Vector, tuple[Cost, PlacedGeometry]]
"""What a GPU can offer (a count per kind) -> the cheapest placement, with its cost."""


class LayoutGpu(msgspec.Struct, frozen=True):
    """A GPU. One that is in use as a whole is ``locked`` and offers no ``WHOLE_GPU``."""

    pci: str
    family: Family
    kinds: dict[str, int]
    """What it can offer: kind -> profile id, or ``WHOLE_GPU``."""
    placed: PlacedGeometry = ()
    """Its present instances, None while MIG is disabled."""
    fixed: frozenset[PlacedInstance] = frozenset()
    """Instances that must stay and offer nothing, because they are held or not plain instances."""
    locked: bool = False
    """Nothing may be changed. The GPU offers what it has."""
    mode_changeable: bool = False
    """MIG mode may be changed."""


class Bounds(msgspec.Struct, frozen=True):
    """Bounds on the devices of a kind. Devices in use count."""

    least: dict[str, int] = {}
    """Met before any demand, as far as possible."""
    most: dict[str, int] = {}
    """Limits only what is created."""
    fill: tuple[str, ...] = ()
    """Kinds to create from the remaining space, most wanted first."""


class NodeLayout(msgspec.Struct, frozen=True):
    """The target layout of a node."""

    placements: dict[str, PlacedGeometry]
    """Instances of every GPU by PCI address."""
    met: tuple[bool, ...]
    """For each demand, whether it can be met."""
    offered: dict[str, int]
    """Devices by kind, without those in use."""
    changed: tuple[str, ...] = ()
    """PCI addresses of GPUs that differ from their present state."""
    destroyed: int = 0
    created: int = 0


def find_layout(gpus: Sequence[LayoutGpu], demands: Sequence[Needs], bounds: Bounds | None = None) -> NodeLayout:
    """Return the layout that meets the demands in their order, each if possible.

    Among those it has the fewest changes of MIG mode, then the fewest instances destroyed, then GPUs changed. After
    that the most devices of ``fill``, the fewest instances created, and the most headroom decide. Of equal GPUs the
    first ones change.
    """
    return NodeLayoutSearch(gpus, bounds or Bounds(), (kind for demand in demands for kind in demand)).find(demands)


class NodeLayoutSearch:
    """GPUs prepared for searches about some kinds. Several lists of demands can be searched with it."""

    def __init__(self, gpus: Sequence[LayoutGpu], bounds: Bounds, kinds: Iterable[str]) -> None:
        self.gpus = gpus
        self.bounds = bounds
        offered = {kind for gpu in gpus for kind in gpu.kinds}
        self.kinds = tuple(sorted(offered & {*kinds, *bounds.least, *bounds.most, *bounds.fill}))
        held = Counter(k for gpu in gpus for p in gpu.fixed for k in self.kinds if gpu.kinds.get(k) == p[0])
        self._held = tuple(held[k] for k in self.kinds)
        self._placements: list[list[PlacedGeometry]] = []
        self._members: dict[tuple[tuple[Vector, Cost], ...], list[int]] = {}
        known: dict[object, list[tuple[Vector, Cost, PlacedGeometry]]] = {}
        for n, gpu in enumerate(gpus):
            offers = tuple(sorted(gpu.kinds.items()))
            state = gpu.family, offers, gpu.placed, gpu.fixed, gpu.locked, gpu.mode_changeable
            if state not in known:
                known[state] = self._worthwhile(_options(gpu, self.kinds, bounds.fill))
            options = known[state]
            self._placements.append([placement for _, _, placement in options])
            self._members.setdefault(tuple((offer, cost) for offer, cost, _ in options), []).append(n)
        self.classes = [GpuClass(len(members), options) for options, members in self._members.items()]
        self._search = CountSearch(self.classes, self._limits())

    @property
    def steps(self) -> int:
        """Return the number of partial layouts that all searches together have examined."""
        return self._search.steps

    def find(self, demands: Sequence[Needs]) -> NodeLayout:
        """Find the layout for a list of demands, as ``find_layout``."""
        floor = self._floor()
        granted = self._vector({})
        known = [n for n, demand in enumerate(demands) if all(k in self.kinds for k, count in demand.items() if count)]
        vectors = {n: self._vector(demands[n]) for n in known}
        met: set[int] = set()
        while known:
            sums = list(accumulate((vectors[n] for n in known), _add_counts, initial=granted))
            count = self._most_that_fit(len(known), [_maximum(floor, each) for each in sums].__getitem__)
            met.update(known[:count])
            granted = sums[count]
            # A demand of at least as much as a refused one cannot be met either.
            known = [n for n in known[count + 1 :] if not all(map(ge, vectors[n], vectors[known[count]]))]
        found = self._search.cheapest(_maximum(floor, granted))
        placements: dict[int, PlacedGeometry] = {
            gpu: self._placements[gpu][option]
            for members, options in zip(self._members.values(), found, strict=True)
            for gpu, option in zip(members, sorted(options, reverse=True), strict=True)
        }
        return self._layout(
            [placements[n] for n in range(len(self.gpus))], tuple(n in met for n in range(len(demands)))
        )

    def _floor(self) -> Vector:
        """Return the devices that are kept at least, as far as possible."""
        floor = self._vector({})
        for kind, count in sorted(self.bounds.least.items()):
            if kind in self.kinds and count > self._count_held(kind):
                needs = partial(self._with, floor, kind)
                floor = needs(self._most_that_fit(count - self._count_held(kind), needs))
        return floor

    def _with(self, need: Vector, kind: str, count: int) -> Vector:
        return _maximum(need, self._vector({kind: count}))

    def _most_that_fit(self, most: int, need: Callable[[int], Vector]) -> int:
        """Return the largest number whose need fits. Needs grow with the number, and that of 0 fits."""
        if self._search.fits(need(most)):
            return most
        return bisect_left(range(1, most), True, key=lambda n: not self._search.fits(need(n)))

    def _worthwhile(self, options: Options) -> list[tuple[Vector, Cost, PlacedGeometry]]:
        """Return the options that no cheaper one replaces, the cheapest first."""
        limited = [n for n, kind in enumerate(self.kinds) if kind in self.bounds.most]
        kept: list[tuple[Vector, Cost, PlacedGeometry]] = []
        for offer, (cost, placement) in sorted(options.items(), key=lambda o: (o[1][0], o[0])):
            if not any(all(map(ge, own, offer)) and all(own[n] == offer[n] for n in limited) for own, _, _ in kept):
                kept.append((offer, cost, placement))
        return kept

    def _limits(self) -> list[int | None]:
        """Return how many of each kind may be offered. A limit that is already exceeded destroys nothing."""
        now = self._vector({})
        for gpu in self.gpus:
            now = _add_counts(now, _offered(gpu, gpu.placed, self.kinds))
        most = [self.bounds.most.get(kind) for kind in self.kinds]
        return [None if m is None else max(m - h, p) for m, h, p in zip(most, self._held, now, strict=True)]

    def _count_held(self, kind: str) -> int:
        return self._held[self.kinds.index(kind)] if kind in self.kinds else 0

    def _vector(self, needs: Needs) -> tuple[int, ...]:
        return tuple(needs.get(k, 0) for k in self.kinds)

    def _layout(self, found: list[PlacedGeometry], met: tuple[bool, ...]) -> NodeLayout:
        offered: Counter[str] = Counter()
        destroyed = created = 0
        for gpu, placement in zip(self.gpus, found, strict=True):
            before, after = set(gpu.placed or ()), set(placement or ())
            destroyed += len(before - after)
            created += len(after - before)
            names = {profile: kind for kind, profile in gpu.kinds.items()}
            free = after - gpu.fixed
            offered.update(names[p] for p, _ in free if p in names)
            if placement is None and WHOLE_GPU in names:
                offered[names[WHOLE_GPU]] += 1
        pairs = list(zip(self.gpus, found, strict=True))
        changed = tuple(
            c.pci for c, p in pairs if (p is None) != (c.placed is None) or set(p or ()) != set(c.placed or ())
        )
        return NodeLayout({c.pci: p for c, p in pairs}, met, dict(sorted(offered.items())), changed, destroyed, created)


def _maximum(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    """Return the larger of each."""
    return tuple(map(max, left, right))


def _add_counts(left: tuple[int, ...], right: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(left, right, strict=True))


def _offered(gpu: LayoutGpu, placement: PlacedGeometry, kinds: Sequence[str]) -> tuple[int, ...]:
    if placement is None:
        return tuple(int(gpu.kinds.get(k) == WHOLE_GPU) for k in kinds)
    counts = Counter(p for p, s in placement if (p, s) not in gpu.fixed)
    return tuple(counts[gpu.kinds[k]] if k in gpu.kinds else 0 for k in kinds)


def _options(gpu: LayoutGpu, kinds: Sequence[str], fill: Sequence[str]) -> Options:
    """Return what a GPU can offer, with the cheapest placement for each."""
    out: Options = {}
    table = compiled_table(gpu.family)
    for placement in _cheap_placements(gpu, kinds, table):
        offered = _offered(gpu, placement, kinds)
        cost = _cost(gpu, placement, table, dict(zip(kinds, offered, strict=True)), fill)
        known = out.get(offered)
        if known is None or (cost, placement or ()) < (known[0], known[1] or ()):
            out[offered] = cost, placement
    return out


def _cheap_placements(gpu: LayoutGpu, kinds: Sequence[str], table: PlacementTable) -> Iterator[PlacedGeometry]:
    """Yield the states that this GPU may reach, of those with the same profiles only the cheapest."""
    profiles = {gpu.kinds[k] for k in kinds if k in gpu.kinds}
    yield from _states_as_they_are(gpu, profiles)
    singles = _singles(gpu, profiles, table)
    if singles is None:
        return
    present = sum(1 << n for n, place in enumerate(singles) if place in (gpu.placed or ()))
    for states in _reachable(gpu.family, tuple(sorted(gpu.fixed)), singles):
        yield min(
            ((present & ~bits).bit_count(), (bits & ~present).bit_count(), -room, placed)
            for bits, room, placed in states
        )[3]


@lru_cache(maxsize=256)
def _reachable(
    family: Family, fixed: tuple[PlacedInstance, ...], singles: tuple[PlacedInstance, ...]
) -> tuple[tuple[_State, ...], ...]:
    """Return all placements of some of ``singles`` beside the fixed instances, by the profiles that they have."""
    table = compiled_table(family)
    numbers = {place: n for n, place in enumerate(singles)}
    found: dict[tuple[int, ...], list[_State]] = {}
    for placed in _extend(table, fixed, table.mask(fixed), singles):
        bits = sum(1 << numbers[place] for place in placed if place in numbers)
        state = bits, table.headroom(table.mask(placed)), placed
        found.setdefault(tuple(profile for profile, _ in placed), []).append(state)
    return tuple(map(tuple, found.values()))


def _cost(
    gpu: LayoutGpu, placement: PlacedGeometry, table: PlacementTable, offered: Needs, fill: Sequence[str]
) -> Cost:
    before, after = set(gpu.placed or ()), set(placement or ())
    mode = (placement is None) != (gpu.placed is None)
    return (
        int(mode),
        len(before - after),
        int(mode or before != after),
        *(-offered.get(k, 0) for k in fill),
        len(after - before),
        -table.headroom(table.mask(k for k in after if k in table.masks)),
    )


def _states_as_they_are(gpu: LayoutGpu, profiles: set[int]) -> Iterator[PlacedGeometry]:
    """Yield the present state, and MIG disabled if that is possible and useful."""
    yield gpu.placed
    if not gpu.locked and WHOLE_GPU in profiles and gpu.mode_changeable and not gpu.fixed:
        yield None


def _singles(gpu: LayoutGpu, profiles: set[int], table: PlacementTable) -> tuple[PlacedInstance, ...] | None:
    """Return the instances that may be kept or created besides the fixed ones. None if nothing may be changed.

    With an instance that no table knows, any placement besides it would be a guess.
    """
    placed = gpu.placed or ()
    if gpu.locked or (gpu.placed is None and not gpu.mode_changeable) or any(p not in table.masks for p in placed):
        return None
    return tuple(sorted({(p, s) for p in profiles for s in table.starts.get(p, ())} | set(placed) - gpu.fixed))


def cheapest_placement(gpu: LayoutGpu, counts: Mapping[int, int]) -> PlacedGeometry:
    """Return the cheapest placement of exactly these instances (profile id -> number) on a GPU.

    None if they do not fit, if others must stay, or if MIG is disabled and may not be enabled.
    """
    table, wanted = compiled_table(gpu.family), Counter(counts)
    found = [gpu.placed]
    singles = _singles(gpu, set(counts), table)
    if singles is not None:
        states = _reachable(gpu.family, tuple(sorted(gpu.fixed)), singles)
        found += [placed for each in states for _, _, placed in each]
    options = [p for p in found if p is not None and Counter(i for i, _ in p) == wanted]
    return min(options, key=lambda p: (_cost(gpu, p, table, {}, ()), p), default=None)


def all_placements(table: PlacementTable) -> Iterator[PlacedGeometry]:
    """Yield every placed layout that an empty GPU of a table can have."""
    yield from _extend(table, (), 0, sorted((p, s) for p, starts in table.starts.items() for s in starts))


def _extend(
    table: PlacementTable, placed: tuple[PlacedInstance, ...], mask: int, singles: Sequence[PlacedInstance]
) -> Iterator[tuple[PlacedInstance, ...]]:
    yield tuple(sorted(placed))
    for n, place in enumerate(singles):
        if table.masks[place] & mask:
            continue
        bigger = (*placed, place)
        if _is_allowed(table.family, tuple(sorted(p for p, _ in bigger))):
            yield from _extend(table, bigger, mask | table.masks[place], singles[n + 1 :])


@lru_cache(maxsize=4096)
def _is_allowed(family: Family, profiles: tuple[int, ...]) -> bool:
    return allowed(compiled_table(family), Counter(profiles))


def forget() -> None:
    """Forget the placements of all tables, so that the next search is as cold as the first of a process."""
    _reachable.cache_clear()
    _is_allowed.cache_clear()
