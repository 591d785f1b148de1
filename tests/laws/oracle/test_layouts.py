"""The layout of up to four GPUs against an exhaustive search, and of sixteen with a bound of the work."""

from __future__ import annotations

import random

import pytest

from aliquot.core.model import catalog
from aliquot.core.planner.node_layout import Bounds, LayoutGpu, NodeLayoutSearch, all_placements, find_layout
from aliquot.core.planner.placement_table import compiled_table
from laws.oracle import raw
from laws.oracle.layout_nodes import A30, A100, Environment, State, check, every_offer
from support.selection import dice as dice_of
from support.selection import samples

SIX = ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")


def environment(dice: random.Random, family: str, gpus: int) -> Environment:
    """Return GPUs of which some are equal, some have MIG disabled, and some have instances in use."""
    states = raw.states(family, True)
    kinds = [
        dice.choice([None, frozenset[raw.Placed](), *dice.choices(states, k=3)]) for _ in range(dice.randint(1, 4))
    ]
    now: list[State] = dice.choices(kinds, k=gpus)
    held = [frozenset(p for p in sorted(state or ()) if dice.random() < 0.3) for state in now]
    return Environment(family, now, held, dice.random() < 0.7, True)


def request(dice: random.Random, kinds: list[str]) -> tuple[list[dict[str, int]], Bounds]:
    demands = [
        {kind: dice.randint(1, 3) for kind in dice.sample(kinds, dice.choice((1, 1, 1, 2)))}
        for _ in range(dice.randint(0, 14))
    ]
    most = {kind: dice.randint(0, 6) for kind in dice.sample(kinds, dice.choice((0, 0, 1, 2)))}
    least = {kind: dice.randint(0, 3) for kind in dice.sample(kinds, dice.choice((0, 0, 1)))}
    least = {kind: min(n, most.get(kind, n)) for kind, n in least.items()}
    return demands, Bounds(least, most, tuple(dice.sample(kinds, dice.choice((0, 0, 1, 2)))))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "gpus", "count"), [(A30, 4, 60), (A100, 2, 25), (A100, 3, 8), (A100, 4, 2)])
def test_several_gpus_against_everything_that_they_can_offer(family: str, gpus: int, count: int) -> None:
    dice = dice_of(f"{family} layouts of {gpus}")
    for _ in range(samples(count)):
        node = environment(dice, family, gpus)
        check(node, *request(dice, sorted(node.kinds)), ends=every_offer)


def node_of_sixteen(dice: random.Random, busy: float, empty: float) -> list[LayoutGpu]:
    table = catalog.family(A100)
    kinds = {name: table.by_name[name].id for name in SIX}
    states = [s for s in all_placements(compiled_table(table)) if s and {p for p, _ in s} <= set(kinds.values())]
    gpus = []
    for n in range(16):
        placed = () if dice.random() < empty else dice.choice(states)
        fixed = frozenset(place for place in placed if dice.random() < busy)
        gpus.append(LayoutGpu(f"{n:02}", table, kinds, placed, fixed))
    return gpus


@pytest.mark.parametrize("demands", [16, 32, 48])
@pytest.mark.parametrize(("busy", "empty", "steps"), [(0.3, 0.2, 600), (0.1, 0.5, 2500), (0, 1, 10_000)])
def test_sixteen_gpus_and_six_kinds_need_little_work(demands: int, busy: float, empty: float, steps: int) -> None:
    # Equal empty GPUs need the most, because many layouts are nearly as good as the best.
    for seed in range(samples(6)):
        dice = random.Random(seed)
        search = NodeLayoutSearch(node_of_sixteen(dice, busy, empty), Bounds(), SIX)
        search.find([{dice.choice(SIX): 1} for _ in range(demands)])
        assert search.steps <= steps


def test_limits_of_some_kinds_need_little_work() -> None:
    for seed in range(samples(6)):
        dice = random.Random(seed)
        bounds = Bounds(most={"1g.5gb": 6, "3g.20gb": 4})
        search = NodeLayoutSearch(node_of_sixteen(dice, 0.2, 0.2), bounds, SIX)
        search.find([{dice.choice(SIX): 1} for _ in range(32)])
        assert search.steps <= 2000


def test_an_array_of_10000_tasks_is_a_few_questions() -> None:
    gpus = node_of_sixteen(random.Random(1), 0, 1)
    search = NodeLayoutSearch(gpus, Bounds(), SIX)
    got = search.find([{"3g.20gb": 1}] * 10_000)
    assert sum(got.met) == 32
    assert got.met[:32] == (True,) * 32
    assert search.steps <= 200


def test_a_least_above_the_room_takes_all_of_it() -> None:
    gpus = node_of_sixteen(random.Random(1), 0, 1)
    got = find_layout(gpus, [{"7g.40gb": 1}], Bounds(least={"3g.20gb": 10**12}))
    assert got.offered == {"3g.20gb": 32}
    assert got.met == (False,)


def test_the_free_half_of_a_gpu_gets_the_best_layout_beside_the_busy_half() -> None:
    table = catalog.family(A100)
    kinds = {name: table.by_name[name].id for name in SIX}
    three, two, one = kinds["3g.20gb"], kinds["2g.10gb"], kinds["1g.5gb"]
    busy = LayoutGpu("0", table, kinds, ((three, 0), (three, 4)), frozenset({(three, 4)}))
    got = find_layout([busy], [{"2g.10gb": 1}, {"1g.5gb": 2}, {"3g.20gb": 1}])
    assert got.met == (True, True, False)
    assert got.placements["0"] == ((three, 4), (two, 0), (one, 2), (one, 3))
    assert got.destroyed == 1


def test_the_first_of_equal_gpus_changes() -> None:
    table = catalog.family(A100)
    kinds = {name: table.by_name[name].id for name in SIX}
    gpus = [LayoutGpu(pci, table, kinds, ((kinds["7g.40gb"], 0),)) for pci in "0123"]
    assert find_layout(gpus, [{"3g.20gb": 3}]).changed == ("0", "1")


def test_a_limited_kind_fills_up_to_its_limit() -> None:
    table = catalog.family(A100)
    kinds = {name: table.by_name[name].id for name in SIX}
    got = find_layout([LayoutGpu("0", table, kinds)], [{"1g.5gb": 1}], Bounds(most={"1g.5gb": 2}, fill=("1g.5gb",)))
    assert got.offered == {"1g.5gb": 2}
