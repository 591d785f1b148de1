"""The layout search against brute force: every state of every GPU, from the raw tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.model import catalog
from aliquot.core.planner.node_layout import WHOLE_GPU, Bounds, LayoutGpu, NodeLayout, find_layout
from laws.oracle import raw
from support.selection import laws

A30 = "a30-24gb"
A100 = "a100-40gb"
State = raw.State | None
"""None if MIG mode is off."""


class Environment:
    """GPUs of one family: their current states, held instances, and the kinds (the profiles' names, and ``whole``)."""

    def __init__(self, family: str, now: list[State], held: list[raw.State], modes: bool, base: bool) -> None:
        self.family = family
        self.now = now
        self.held = held
        self.modes = modes
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


def brute(
    environment: Environment, demands: list[dict[str, int]], bounds: Bounds
) -> tuple[list[bool], tuple[int, ...]]:
    """Return which demands are met, one after the other, and the least cost of meeting them."""
    wanted = {k for d in demands for k in d} | {*bounds.least, *bounds.most, *bounds.fill}
    ends = [(end, environment.offers(end)) for end in environment.everything(wanted)]
    now = environment.offers(tuple(environment.now))
    busy = Counter(name for held in environment.held for name, _ in held)
    for kind, most in bounds.most.items():
        ends = [e for e in ends if e[1][kind] <= max(now[kind], most - busy[kind])]
    for kind, least in sorted(bounds.least.items()):
        count = max(0, least - busy[kind])
        while not any(offered[kind] >= count for _, offered in ends):
            count -= 1
        ends = [e for e in ends if e[1][kind] >= count]
    met = []
    total: Counter[str] = Counter()
    for demand in demands:
        more = total + Counter(demand)
        fits = [e for e in ends if all(e[1][k] >= n for k, n in more.items())]
        met.append(bool(fits))
        if fits:
            ends, total = fits, more
    return met, min(environment.cost(end, bounds.fill) for end, _ in ends)


def check(environment: Environment, demands: list[dict[str, int]], bounds: Bounds) -> NodeLayout:
    got = find_layout(environment.gpus, demands, bounds)
    names = {v: k for k, v in environment.kinds.items()}
    end = tuple(
        None if placed is None else frozenset((names[p], s) for p, s in placed) for placed in got.placements.values()
    )
    assert all(state is None or raw.legal(environment.family, state) for state in end)
    assert all(held <= (state or frozenset()) for held, state in zip(environment.held, end, strict=True))
    met, cost = brute(environment, demands, bounds)
    assert list(got.met) == met
    assert environment.cost(end, bounds.fill) == cost
    assert got.destroyed == cost[1]
    assert len(got.changed) == cost[2]
    assert Counter(got.offered) == environment.offers(end)
    return got


@st.composite
def environments(draw: st.DrawFn, family: str, base: bool, most: int) -> Environment:
    states = raw.states(family, base)
    now: list[State] = []
    held: list[raw.State] = []
    for _ in range(draw(st.integers(1, most))):
        state = draw(st.sampled_from([None, *states]))
        now.append(state)
        held.append(frozenset(draw(st.sets(st.sampled_from(sorted(state))))) if state else frozenset())
    return Environment(family, now, held, draw(st.booleans()), base)


def demanded(environment: Environment, most: int) -> st.SearchStrategy[list[dict[str, int]]]:
    kinds = st.sampled_from([*sorted(environment.kinds), "9g.99gb"])
    return st.lists(st.dictionaries(kinds, st.integers(1, 4), min_size=1, max_size=2), max_size=most)


@st.composite
def bounded(draw: st.DrawFn, environment: Environment) -> Bounds:
    kinds = st.sampled_from(sorted(environment.kinds))
    limits = st.dictionaries(kinds, st.integers(0, 3), max_size=2)
    least, most = draw(limits), draw(limits)
    fill = draw(st.lists(kinds, unique=True, max_size=2))
    return Bounds({k: n for k, n in least.items() if n <= most.get(k, n)}, most, tuple(fill))


@laws(60)
@given(st.data())
def test_two_a30_against_every_pair_of_states(data: st.DataObject) -> None:
    environment = data.draw(environments(A30, True, 2))
    check(environment, data.draw(demanded(environment, 4)), data.draw(bounded(environment)))


@laws(40)
@given(st.data())
def test_one_a100_against_every_state(data: st.DataObject) -> None:
    environment = data.draw(environments(A100, True, 1))
    check(environment, data.draw(demanded(environment, 4)), data.draw(bounded(environment)))


@pytest.mark.slow
def test_a_queue_of_everything_on_eight_gpus() -> None:
    table = catalog.family(A100)
    kinds = {name: table.by_name[name].id for name in ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")}
    gpus = [LayoutGpu(str(n), table, kinds, ()) for n in range(8)]
    queue = [{kind: 1} for kind in kinds for _ in range(40)]
    got = find_layout(gpus, queue, Bounds(fill=tuple(kinds)))
    assert got.offered == {"1g.5gb": 40, "2g.10gb": 8}, "the first kind's 40, then those that fit on 16 slices"
    got = find_layout(gpus, queue[::-1])
    assert got.offered == {"7g.40gb": 8}


def test_what_is_in_use_stays_and_the_rest_makes_room() -> None:
    table = catalog.family(A100)
    kinds = {name: table.by_name[name].id for name in ("1g.5gb", "3g.20gb")}
    gpu = LayoutGpu("0", table, kinds, ((9, 0), (9, 4)), frozenset({(9, 4)}))
    got = find_layout([gpu], [{"3g.20gb": 1}])
    assert got.met == (True,)
    assert got.changed == ()
    got = find_layout([gpu], [{"3g.20gb": 2}, {"1g.5gb": 1}], Bounds(fill=("1g.5gb",)))
    assert got.met == (False, True)
    assert got.placements == {"0": ((9, 4), (19, 0), (19, 1), (19, 2), (19, 3))}
    assert got.offered == {"1g.5gb": 4}
