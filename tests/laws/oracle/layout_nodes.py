"""Nodes for the layout search, and what an exhaustive search over the states of their GPUs finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import product

from aliquot.core.model import catalog
from aliquot.core.planner.node_layout import WHOLE_GPU, Bounds, LayoutGpu, NodeLayout, find_layout
from laws.oracle import raw

A30 = "a30-24gb"
A100 = "a100-40gb"
State = raw.State | None
"""None if MIG mode is off."""
End = tuple[Counter[str], tuple[int, ...]]
"""What an end state of all GPUs offers, and what it costs."""
Ends = Callable[["Environment", set[str], tuple[str, ...]], list[End]]


class Environment:
    """GPUs of one family: their current states, held instances, and the kinds (the profiles' names, and ``whole``)."""

    def __init__(self, family: str, now: list[State], held: list[raw.State], modes: bool, base: bool) -> None:
        self.family = family
        self.now = now
        self.held = held
        self.modes = modes
        self.base = base
        self.states = raw.states(family, base)
        table = catalog.family(family)
        names = {name for state in self.states for name, _ in state}
        self.kinds = {name: table.by_name[name].id for name in names} | {"whole": WHOLE_GPU}
        self.gpus = [
            LayoutGpu(
                pci=str(n),
                family=table,
                kinds=self.kinds,
                placed=None if state is None else self.ids(state),
                fixed=frozenset(self.ids(busy)),
                mode_changeable=modes,
            )
            for n, (state, busy) in enumerate(zip(now, held, strict=True))
        ]

    def ids(self, state: raw.State) -> tuple[tuple[int, int], ...]:
        by_name = catalog.family(self.family).by_name
        return tuple(sorted((by_name[name].id, start) for name, start in state))

    def reachable(self, n: int, wanted: set[str]) -> list[State]:
        """Return every possible end state of GPU n, from its instances and the requested ones."""
        now, held = self.now[n], self.held[n]
        found: list[State] = []
        if now is None or (self.modes and "whole" in wanted and not held):
            found.append(None)
        if now is not None or self.modes:
            known = now or frozenset()
            found += [s for s in self.states if held <= s and all(p in known or p[0] in wanted for p in s)]
        return found

    def everything(self, wanted: set[str]) -> Iterator[tuple[State, ...]]:
        yield from product(*(self.reachable(n, wanted) for n in range(len(self.now))))

    def offers(self, end: tuple[State, ...]) -> Counter[str]:
        out: Counter[str] = Counter()
        for state, busy in zip(end, self.held, strict=True):
            out.update(["whole"] if state is None else [name for name, _ in state - busy])
        return out

    def cost(self, end: tuple[State, ...], fill: tuple[str, ...]) -> tuple[int, ...]:
        modes = destroyed = changed = created = room = 0
        for was, state in zip(self.now, end, strict=True):
            a, b = was or frozenset(), state or frozenset()
            mode = (was is None) != (state is None)
            modes += mode
            destroyed += len(a - b)
            changed += mode or a != b
            created += len(b - a)
            room += raw.room(self.family, b)
        offered = self.offers(end)
        return (modes, destroyed, changed, *(-offered[k] for k in fill), created, -room)


def every_end(environment: Environment, wanted: set[str], fill: tuple[str, ...]) -> list[End]:
    """Return all end states, each one by itself."""
    return [(environment.offers(end), environment.cost(end, fill)) for end in environment.everything(wanted)]


def every_offer(environment: Environment, wanted: set[str], fill: tuple[str, ...]) -> list[End]:
    """Return what the GPUs can offer together, with the least cost of each: GPU by GPU, for more of them."""
    kinds = sorted(environment.kinds)
    cost = (0,) * (5 + len(fill))
    ends = {(0,) * len(kinds): cost}
    for n, now in enumerate(environment.now):
        alone = Environment(environment.family, [now], [environment.held[n]], environment.modes, environment.base)
        own: dict[tuple[int, ...], tuple[int, ...]] = {}
        for offered, cost in every_end(alone, wanted, fill):
            key = tuple(offered[k] for k in kinds)
            own[key] = min(cost, own.get(key, cost))
        grown: dict[tuple[int, ...], tuple[int, ...]] = {}
        for (done, spent), (more, cost) in product(ends.items(), own.items()):
            key, total = tuple(map(int.__add__, done, more)), tuple(map(int.__add__, spent, cost))
            if key not in grown or total < grown[key]:
                grown[key] = total
        ends = grown
    return [(Counter(dict(zip(kinds, key, strict=True))), cost) for key, cost in ends.items()]


def brute(
    environment: Environment, demands: list[dict[str, int]], bounds: Bounds, ends: list[End]
) -> tuple[list[bool], tuple[int, ...]]:
    """Return which demands are met, one after the other, and the least cost of meeting them."""
    now = environment.offers(tuple(environment.now))
    busy = Counter(name for held in environment.held for name, _ in held)
    for kind, most in bounds.most.items():
        ends = [e for e in ends if e[0][kind] <= max(now[kind], most - busy[kind])]
    for kind, least in sorted(bounds.least.items()):
        count = max(0, least - busy[kind])
        while not any(offered[kind] >= count for offered, _ in ends):
            count -= 1
        ends = [e for e in ends if e[0][kind] >= count]
    met = []
    total: Counter[str] = Counter()
    for demand in demands:
        more = total + Counter(demand)
        fits = [e for e in ends if all(e[0][k] >= n for k, n in more.items())]
        met.append(bool(fits))
        if fits:
            ends, total = fits, more
    return met, min(cost for _, cost in ends)


def check(
    environment: Environment, demands: list[dict[str, int]], bounds: Bounds, ends: Ends = every_end
) -> NodeLayout:
    """Compare the layout that is found with that of an exhaustive search."""
    got = find_layout(environment.gpus, demands, bounds)
    names = {v: k for k, v in environment.kinds.items()}
    end = tuple(
        None if placed is None else frozenset((names[p], s) for p, s in placed) for placed in got.placements.values()
    )
    assert all(state is None or raw.legal(environment.family, state) for state in end)
    assert all(held <= (state or frozenset()) for held, state in zip(environment.held, end, strict=True))
    wanted = {k for d in demands for k in d} | {*bounds.least, *bounds.most, *bounds.fill}
    met, cost = brute(environment, demands, bounds, ends(environment, wanted, bounds.fill))
    assert list(got.met) == met
    assert environment.cost(end, bounds.fill) == cost
    assert got.destroyed == cost[1]
    assert len(got.changed) == cost[2]
    assert Counter(got.offered) == environment.offers(end)
    return got
