"""The layout search against brute force: every state of every GPU, from the raw tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.model import catalog
from aliquot.core.planner.node_layout import Bounds, LayoutGpu, find_layout
from laws.oracle import raw
from laws.oracle.layout_nodes import A30, A100, Environment, State, check
from support.selection import laws


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
