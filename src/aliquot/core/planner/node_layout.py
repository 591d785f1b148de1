"""The layout of several GPUs of one node that meets the most important demands and destroys the least.

A demand is a number of devices of some kinds, all of them together or none. Demands are sorted, most important first. A
later demand is met only with what all earlier ones leave. The search is complete: per GPU it covers every placed layout
(2,318 at most), and over the GPUs it searches by what they offer together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable, compiled_table
from aliquot.core.planner.rules import allowed

WHOLE_GPU = -1
"""Used as a profile id: the GPU with MIG disabled, as one device."""
Needs = Mapping[str, int]
"""Kind -> number of devices."""
Cost = tuple[int, ...]
PlacedGeometry = tuple[PlacedInstance, ...] | None
"""The instances of a GPU. None if MIG is disabled and the GPU is one device."""


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


class _Choice(msgspec.Struct, frozen=True):
    """The cheapest placement of one GPU among those that offer the same."""

    cost: Cost
    placement: PlacedGeometry


Options = dict[tuple[int, ...], _Choice]
"""What a GPU can offer (a count per kind) -> the cheapest placement."""


def find_layout(gpus: Sequence[LayoutGpu], demands: Sequence[Needs], bounds: Bounds | None = None) -> NodeLayout:
    """Return the layout that meets the demands in their order, each if possible.

    Among those it has the fewest changes of MIG mode, then the fewest instances destroyed, then GPUs changed. After
    that the most devices of ``fill``, the fewest instances created, and the most headroom decide.
    """
    return NodeLayoutSearch(gpus, bounds or Bounds(), (kind for demand in demands for kind in demand)).find(demands)


class NodeLayoutSearch:
    """GPUs prepared for searches about some kinds. Several lists of demands can be searched with it."""

    def __init__(self, gpus: Sequence[LayoutGpu], bounds: Bounds, kinds: Iterable[str]) -> None:
        self.gpus = gpus
        self.bounds = bounds
        offered = {kind for gpu in gpus for kind in gpu.kinds}
        self.kinds = tuple(sorted(offered & {*kinds, *bounds.least, *bounds.most, *bounds.fill}))
        known: dict[object, Options] = {}
        self._options = []
        for gpu in gpus:
            key = (
                gpu.family.name,
                tuple(sorted(gpu.kinds.items())),
                gpu.placed,
                gpu.fixed,
                gpu.locked,
                gpu.mode_changeable,
            )
            if key not in known:
                known[key] = _options(gpu, self.kinds, bounds.fill)
            self._options.append(known[key])
        held = Counter(k for gpu in gpus for p in gpu.fixed for k in self.kinds if gpu.kinds.get(k) == p[0])
        self._held = tuple(held[k] for k in self.kinds)

    def find(self, demands: Sequence[Needs]) -> NodeLayout:
        """Find the layout for a list of demands, as ``find_layout``."""
        need = self._vector({})
        for kind, count in sorted(self.bounds.least.items()):
            for _ in range(max(0, count - self._count_held(kind))):
                more = self._sum(need, {kind: 1})
                if more is None or self._best(more) is None:
                    break
                need = more
        floor, granted = need, self._vector({})
        met: list[bool] = []
        refused: set[tuple[tuple[str, int], ...]] = set()
        for demand in demands:
            key = tuple(sorted((k, n) for k, n in demand.items() if n))
            more = None if key in refused else self._sum(granted, demand)
            fits = more is not None and self._best(_maximum(floor, more)) is not None
            met.append(fits)
            if fits and more is not None:
                granted = more
            else:
                refused.add(key)
        found = self._best(_maximum(floor, granted))
        assert found is not None, "the present state meets the empty demand"
        return self._layout(found, tuple(met))

    def _count_held(self, kind: str) -> int:
        return self._held[self.kinds.index(kind)] if kind in self.kinds else 0

    def _vector(self, needs: Needs) -> tuple[int, ...]:
        return tuple(needs.get(k, 0) for k in self.kinds)

    def _sum(self, need: tuple[int, ...], more: Needs) -> tuple[int, ...] | None:
        """Return the sum, None if no GPU has one of the kinds."""
        if any(n and k not in self.kinds for k, n in more.items()):
            return None
        return tuple(a + b for a, b in zip(need, self._vector(more), strict=True))

    def _best(self, need: tuple[int, ...]) -> list[PlacedGeometry] | None:
        """Return the cheapest placements that offer at least ``need`` and at most ``most``. None if there are none."""
        most = [self.bounds.most.get(k) for k in self.kinds]
        limits = [None if m is None else max(0, m - h) for m, h in zip(most, self._held, strict=True)]
        table: dict[tuple[int, ...], tuple[Cost, list[PlacedGeometry]]] = {tuple(0 for _ in self.kinds): ((), [])}
        for options in self._options:
            grown: dict[tuple[int, ...], tuple[Cost, list[PlacedGeometry]]] = {}
            for offered, (cost, done) in table.items():
                for adds, choice in options.items():
                    whole = tuple(a + b for a, b in zip(offered, adds, strict=True))
                    # Counts above the need are equivalent, unless a limit applies to the total.
                    state = tuple(min(n, w) if r is None else n for n, w, r in zip(whole, need, limits, strict=True))
                    total = _add_costs(cost, choice.cost)
                    if state not in grown or total < grown[state][0]:
                        grown[state] = total, [*done, choice.placement]
            table = grown
        now = self._present_offer()
        fits = [
            found
            for state, found in table.items()
            if all(s >= n for s, n in zip(state, need, strict=True))
            and all(r is None or s <= max(r, p) for s, r, p in zip(state, limits, now, strict=True))
        ]
        return min(fits, key=lambda f: f[0])[1] if fits else None

    def _present_offer(self) -> tuple[int, ...]:
        """Return what the GPUs offer now. A limit that is already exceeded destroys nothing."""
        total = self._vector({})
        for gpu in self.gpus:
            total = _add_counts(total, _offered(gpu, gpu.placed, self.kinds))
        return total

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


def _add_costs(left: Cost, right: Cost) -> Cost:
    return tuple(x + y for x, y in zip(left, right, strict=True)) if left else right


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
    for placement in _placements(gpu, table, {gpu.kinds[k] for k in kinds if k in gpu.kinds}):
        offered = _offered(gpu, placement, kinds)
        cost = _cost(gpu, placement, table, dict(zip(kinds, offered, strict=True)), fill)
        known = out.get(offered)
        if known is None or (cost, placement or ()) < (known.cost, known.placement or ()):
            out[offered] = _Choice(cost, placement)
    return out


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


def _placements(gpu: LayoutGpu, table: PlacementTable, profiles: set[int]) -> Iterator[PlacedGeometry]:
    """Yield every state that this GPU may reach: its fixed instances, with others of ``profiles`` or as they are."""
    yield gpu.placed
    if gpu.locked or (gpu.placed is None and not gpu.mode_changeable):
        return
    if WHOLE_GPU in profiles and gpu.mode_changeable and not gpu.fixed:
        yield None
    unknown = [p for p in gpu.placed or () if p not in table.masks]
    if unknown:
        return  # with an instance that no table knows, any placement besides it is a guess
    fixed = tuple(sorted(gpu.fixed))
    present = set(gpu.placed or ())
    singles = sorted({(p, s) for p in profiles if p in table.starts for s in table.starts[p]} | present - gpu.fixed)
    yield from _extend(table, fixed, table.mask(fixed), Counter(p for p, _ in fixed), singles)


def cheapest_placement(gpu: LayoutGpu, counts: Mapping[int, int]) -> PlacedGeometry:
    """Return the cheapest placement of exactly these instances (profile id -> number) on a GPU.

    None if they do not fit, if others must stay, or if MIG is disabled and may not be enabled.
    """
    table, wanted = compiled_table(gpu.family), Counter(counts)
    options = [p for p in _placements(gpu, table, set(counts)) if p is not None and Counter(i for i, _ in p) == wanted]
    return min(options, key=lambda p: (_cost(gpu, p, table, {}, ()), p), default=None)


def all_placements(table: PlacementTable) -> Iterator[PlacedGeometry]:
    """Yield every placed layout that an empty GPU of a table can have."""
    yield from _extend(table, (), 0, Counter(), sorted((p, s) for p, starts in table.starts.items() for s in starts))


def _extend(
    table: PlacementTable,
    placed: tuple[PlacedInstance, ...],
    mask: int,
    counts: Counter[int],
    singles: Sequence[PlacedInstance],
) -> Iterator[PlacedGeometry]:
    yield tuple(sorted(placed))
    for n, place in enumerate(singles):
        if table.masks[place] & mask:
            continue
        bigger = counts + Counter((place[0],))
        if allowed(table, bigger):
            yield from _extend(table, (*placed, place), mask | table.masks[place], bigger, singles[n + 1 :])
