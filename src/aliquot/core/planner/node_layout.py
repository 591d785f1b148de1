"""Which layout several GPUs of one machine should have, so that the most important demands are met and the least is
destroyed.

A demand is a number of devices of some kinds, all of them together or not at all. Demands come most important first;
a later one is met only as far as all earlier ones leave room. The search is complete: per GPU every placed layout
(2,318 at most), over the GPUs one table by what they offer together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.planner.placement_table import Board, Placed, board
from aliquot.core.planner.rules import allowed

WHOLE = -1
"""Stands for a profile id: the GPU with MIG off, as one device."""
Needs = Mapping[str, int]
"""Kind -> number of devices."""
Cost = tuple[int, ...]
Placement = tuple[Placed, ...] | None
"""The instances of a GPU; None: MIG is off, the GPU is one device."""


class Card(msgspec.Struct, frozen=True):
    """One GPU. ``kinds`` names what it can offer: kind -> profile id, or ``WHOLE``. ``placed`` are its instances now,
    None while MIG is off. ``fixed`` must stay (somebody is on them, or they are no plain instances), and offer nothing.
    ``still``: nothing may be changed here, what it has is offered. ``modes``: MIG mode may be changed. A GPU that
    somebody uses as a whole is ``still`` and of no kind ``WHOLE``.
    """

    pci: str
    family: Family
    kinds: dict[str, int]
    placed: Placement = ()
    fixed: frozenset[Placed] = frozenset()
    still: bool = False
    modes: bool = False


class Bounds(msgspec.Struct, frozen=True):
    """``least`` and ``most`` devices of a kind, those in use counted. ``least`` is met before any demand, as far as it
    can be; ``most`` only limits what is made anew. ``fill`` are the kinds that room left over is cut into, the most
    welcome first.
    """

    least: dict[str, int] = {}
    most: dict[str, int] = {}
    fill: tuple[str, ...] = ()


class Layout(msgspec.Struct, frozen=True):
    """What to aim for. ``cards`` has every GPU's instances by PCI address, ``changed`` the addresses of those that
    differ from what they are. ``met`` says of each demand whether it can be met; ``offered`` counts devices by kind,
    those in use left out.
    """

    cards: dict[str, Placement]
    met: tuple[bool, ...]
    offered: dict[str, int]
    changed: tuple[str, ...] = ()
    destroyed: int = 0
    created: int = 0


class _Choice(msgspec.Struct, frozen=True):
    """The cheapest placement of one GPU among those that offer the same."""

    cost: Cost
    placement: Placement


Options = dict[tuple[int, ...], _Choice]
"""What a GPU can offer (a count per kind) -> the cheapest way."""


def layout(cards: Sequence[Card], demands: Sequence[Needs], bounds: Bounds | None = None) -> Layout:
    """The layout that meets the demands in their order, each if it can be; of all such the one with the fewest changes
    of MIG mode, then the fewest instances destroyed, GPUs changed, the most devices of ``fill``, the fewest instances
    created, and the most room left.
    """
    return Search(cards, bounds or Bounds(), (kind for demand in demands for kind in demand)).aim(demands)


class Search:
    """GPUs prepared for questions about some kinds: several lists of demands may be asked of one."""

    def __init__(self, cards: Sequence[Card], bounds: Bounds, kinds: Iterable[str]) -> None:
        self.cards = cards
        self.bounds = bounds
        offered = {kind for card in cards for kind in card.kinds}
        self.kinds = tuple(sorted(offered & {*kinds, *bounds.least, *bounds.most, *bounds.fill}))
        known: dict[object, Options] = {}
        self._options = []
        for card in cards:
            key = (card.family.name, tuple(sorted(card.kinds.items())), card.placed, card.fixed, card.still, card.modes)
            if key not in known:
                known[key] = _options(card, self.kinds, bounds.fill)
            self._options.append(known[key])
        held = Counter(k for card in cards for p in card.fixed for k in self.kinds if card.kinds.get(k) == p[0])
        self._held = tuple(held[k] for k in self.kinds)

    def aim(self, demands: Sequence[Needs]) -> Layout:
        """See ``layout``."""
        need = self._vector({})
        for kind, count in sorted(self.bounds.least.items()):
            for _ in range(max(0, count - self._holding(kind))):
                more = self._sum(need, {kind: 1})
                if more is None or self._best(more) is None:
                    break
                need = more
        floor, asked = need, self._vector({})
        met: list[bool] = []
        refused: set[tuple[tuple[str, int], ...]] = set()
        for demand in demands:
            key = tuple(sorted((k, n) for k, n in demand.items() if n))
            more = None if key in refused else self._sum(asked, demand)
            fits = more is not None and self._best(_either(floor, more)) is not None
            met.append(fits)
            if fits and more is not None:
                asked = more
            else:
                refused.add(key)
        found = self._best(_either(floor, asked))
        assert found is not None, "what is there now meets the empty demand"
        return self._told(found, tuple(met))

    def _holding(self, kind: str) -> int:
        return self._held[self.kinds.index(kind)] if kind in self.kinds else 0

    def _vector(self, needs: Needs) -> tuple[int, ...]:
        return tuple(needs.get(k, 0) for k in self.kinds)

    def _sum(self, need: tuple[int, ...], more: Needs) -> tuple[int, ...] | None:
        """None where no GPU has one of the kinds."""
        if any(n and k not in self.kinds for k, n in more.items()):
            return None
        return tuple(a + b for a, b in zip(need, self._vector(more), strict=True))

    def _best(self, need: tuple[int, ...]) -> list[Placement] | None:
        """The cheapest placements that offer at least ``need`` and no more than ``most``. None if there are none."""
        most = [self.bounds.most.get(k) for k in self.kinds]
        room = [None if m is None else max(0, m - h) for m, h in zip(most, self._held, strict=True)]
        table: dict[tuple[int, ...], tuple[Cost, list[Placement]]] = {tuple(0 for _ in self.kinds): ((), [])}
        for options in self._options:
            grown: dict[tuple[int, ...], tuple[Cost, list[Placement]]] = {}
            for offered, (cost, done) in table.items():
                for adds, choice in options.items():
                    whole = tuple(a + b for a, b in zip(offered, adds, strict=True))
                    # What is wanted is enough to remember, unless the whole number must not grow beyond a limit.
                    state = tuple(min(n, w) if r is None else n for n, w, r in zip(whole, need, room, strict=True))
                    total = _plus(cost, choice.cost)
                    if state not in grown or total < grown[state][0]:
                        grown[state] = total, [*done, choice.placement]
            table = grown
        now = self._now()
        fits = [
            found
            for state, found in table.items()
            if all(s >= n for s, n in zip(state, need, strict=True))
            and all(r is None or s <= max(r, p) for s, r, p in zip(state, room, now, strict=True))
        ]
        return min(fits, key=lambda f: f[0])[1] if fits else None

    def _now(self) -> tuple[int, ...]:
        """What is offered as it is: a limit that is passed already destroys nothing."""
        total = self._vector({})
        for card in self.cards:
            total = _added(total, _offers(card, card.placed, self.kinds))
        return total

    def _told(self, found: list[Placement], met: tuple[bool, ...]) -> Layout:
        offered: Counter[str] = Counter()
        destroyed = created = 0
        for card, placement in zip(self.cards, found, strict=True):
            before, after = set(card.placed or ()), set(placement or ())
            destroyed += len(before - after)
            created += len(after - before)
            names = {profile: kind for kind, profile in card.kinds.items()}
            free = after - card.fixed
            offered.update(names[p] for p, _ in free if p in names)
            if placement is None and WHOLE in names:
                offered[names[WHOLE]] += 1
        pairs = list(zip(self.cards, found, strict=True))
        changed = tuple(
            c.pci for c, p in pairs if (p is None) != (c.placed is None) or set(p or ()) != set(c.placed or ())
        )
        return Layout({c.pci: p for c, p in pairs}, met, dict(sorted(offered.items())), changed, destroyed, created)


def _plus(a: Cost, b: Cost) -> Cost:
    return tuple(x + y for x, y in zip(a, b, strict=True)) if a else b


def _either(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The larger of each."""
    return tuple(map(max, a, b))


def _added(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _offers(card: Card, placement: Placement, kinds: Sequence[str]) -> tuple[int, ...]:
    if placement is None:
        return tuple(int(card.kinds.get(k) == WHOLE) for k in kinds)
    counts = Counter(p for p, s in placement if (p, s) not in card.fixed)
    return tuple(counts[card.kinds[k]] if k in card.kinds else 0 for k in kinds)


def _options(card: Card, kinds: Sequence[str], fill: Sequence[str]) -> Options:
    """What a GPU can offer, and the cheapest way to each."""
    out: Options = {}
    table = board(card.family)
    for placement in _placements(card, table, {card.kinds[k] for k in kinds if k in card.kinds}):
        offered = _offers(card, placement, kinds)
        cost = _cost(card, placement, table, dict(zip(kinds, offered, strict=True)), fill)
        known = out.get(offered)
        if known is None or (cost, placement or ()) < (known.cost, known.placement or ()):
            out[offered] = _Choice(cost, placement)
    return out


def _cost(card: Card, placement: Placement, table: Board, offered: Needs, fill: Sequence[str]) -> Cost:
    before, after = set(card.placed or ()), set(placement or ())
    mode = (placement is None) != (card.placed is None)
    return (
        int(mode),
        len(before - after),
        int(mode or before != after),
        *(-offered.get(k, 0) for k in fill),
        len(after - before),
        -table.room(table.mask(k for k in after if k in table.masks)),
    )


def _placements(card: Card, table: Board, profiles: set[int]) -> Iterator[Placement]:
    """Every state that this GPU may be left in: with its fixed instances, and others of ``profiles`` or as they are."""
    yield card.placed
    if card.still or (card.placed is None and not card.modes):
        return
    if WHOLE in profiles and card.modes and not card.fixed:
        yield None
    unknown = [p for p in card.placed or () if p not in table.masks]
    if unknown:
        return  # an instance that no table knows: whatever is made beside it is a guess
    fixed = tuple(sorted(card.fixed))
    present = set(card.placed or ())
    singles = sorted({(p, s) for p in profiles if p in table.starts for s in table.starts[p]} | present - card.fixed)
    yield from _grown(table, fixed, table.mask(fixed), Counter(p for p, _ in fixed), singles)


def exactly(card: Card, counts: Mapping[int, int]) -> Placement:
    """The cheapest way for a GPU to have these instances and no others (profile id -> number). None where there is
    none: they do not fit, others must stay, or MIG is off and may not be turned on.
    """
    table, wanted = board(card.family), Counter(counts)
    ways = [p for p in _placements(card, table, set(counts)) if p is not None and Counter(i for i, _ in p) == wanted]
    return min(ways, key=lambda p: (_cost(card, p, table, {}, ()), p), default=None)


def states(table: Board) -> Iterator[Placement]:
    """Every placed layout that an empty GPU of a table may be given, one after the other."""
    yield from _grown(table, (), 0, Counter(), sorted((p, s) for p, starts in table.starts.items() for s in starts))


def _grown(
    table: Board, placed: tuple[Placed, ...], mask: int, counts: Counter[int], singles: Sequence[Placed]
) -> Iterator[Placement]:
    yield tuple(sorted(placed))
    for n, place in enumerate(singles):
        if table.masks[place] & mask:
            continue
        bigger = counts + Counter((place[0],))
        if allowed(table, bigger):
            yield from _grown(table, (*placed, place), mask | table.masks[place], bigger, singles[n + 1 :])
