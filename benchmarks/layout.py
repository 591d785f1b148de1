"""The layout of a node for a queue of demands: CPU time of sixteen GPUs, and of fewer against the former search."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from time import thread_time

import msgspec
from benchmarks.measure import Figure, Report, alternate, at_most, digest, load, ratio, spread

from aliquot.core.model import catalog
from aliquot.core.planner import node_layout
from aliquot.core.planner.count_search import GpuClass
from aliquot.core.planner.node_layout import Bounds, LayoutGpu, NodeLayoutSearch, all_placements
from aliquot.core.planner.placement_table import compiled_table

GROUP = "Layout of a node"
GOAL_MS = 100.0
KINDS = ("1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")
FAMILY = "a100-40gb"
STATES = {
    "half of them empty, a tenth of the instances in use": (0.5, 0.1),
    "a fifth of them empty, a third of the instances in use": (0.2, 0.33),
    "all of them empty": (1.0, 0.0),
}
Case = tuple[list[LayoutGpu], list[dict[str, int]]]


def run(report: Report, quick: bool) -> None:
    report(load(GROUP))
    repeats = 5 if quick else 40
    for state, (empty, busy) in STATES.items():
        for devices in (48, 32, 16):
            cases = [_case(seed, 16, devices, empty, busy) for seed in range(repeats)]
            _sixteen(report, f"16 GPUs, {state}; {devices} requested devices of six kinds", cases)
    for gpus in (3, 4, 5):
        _compare(report, gpus, 2 if quick else 6)


def _case(seed: int, gpus: int, devices: int, empty: float, busy: float) -> Case:
    """Return GPUs in different states, and a queue of devices of random kinds."""
    dice = random.Random(seed)
    table = catalog.family(FAMILY)
    kinds = {name: table.by_name[name].id for name in KINDS}
    states = [s for s in all_placements(compiled_table(table)) if s and {p for p, _ in s} <= set(kinds.values())]
    node = []
    for n in range(gpus):
        placed = () if dice.random() < empty else dice.choice(states)
        fixed = frozenset(place for place in placed if dice.random() < busy)
        node.append(LayoutGpu(f"{n:02}", table, kinds, placed, fixed))
    return node, [{dice.choice(KINDS): 1} for _ in range(devices)]


def _sixteen(report: Report, name: str, cases: Sequence[Case]) -> None:
    report(Figure(GROUP, f"{name}: input", f"sha256 {digest(msgspec.json.encode(cases))}", "measured"))
    cold: list[float] = []
    warm: list[float] = []
    for gpus, queue in cases:
        node_layout.forget()
        for times in (cold, warm):
            begin = thread_time()
            NodeLayoutSearch(gpus, Bounds(), KINDS).find(queue)
            times.append((thread_time() - begin) * 1e3)
    for what, times in (("tables thrown away before each", cold), ("warm", warm)):
        value = f"{median(times):.0f} ms CPU median"
        within = f"{spread(times, '.0f', ' ms')}, {sum(t <= GOAL_MS for t in times)} within the goal"
        verdict = at_most(median(times), GOAL_MS)
        report(Figure(GROUP, f"{name}, {what}", value, "measured", f"<= {GOAL_MS:.0f} ms", verdict, within))


def _compare(report: Report, gpus: int, repeats: int) -> None:
    """Compare the search with the former one, which kept all offers of the GPUs together."""
    ours: list[float] = []
    theirs: list[float] = []
    for seed in range(repeats):
        node, queue = _case(seed, gpus, 3 * gpus, 0.5, 0.1)
        search = NodeLayoutSearch(node, Bounds(), KINDS)
        assert search.find(queue).met == met_by_all_offers(search, queue)
        sides = alternate(1, {"now": partial(_now, node, queue), "former": partial(_before, search, queue)})
        ours += sides["now"]
        theirs += sides["former"]
    factor, factors = ratio(theirs, ours)
    name = f"{gpus} GPUs, {3 * gpus} requested devices, against one table of all offers per device, as it was"
    value = f"{factor:.1f}x less ({median(ours):.1f} ms for {median(theirs):.1f} ms)"
    report(Figure(GROUP, name, value, "measured", spread=spread(factors, ".1f")))


def _now(node: Sequence[LayoutGpu], queue: Sequence[dict[str, int]]) -> float:
    return _cpu(lambda: NodeLayoutSearch(node, Bounds(), KINDS).find(queue))


def _before(search: NodeLayoutSearch, queue: Sequence[dict[str, int]]) -> float:
    return _cpu(lambda: met_by_all_offers(search, queue))


def met_by_all_offers(search: NodeLayoutSearch, queue: Sequence[dict[str, int]]) -> tuple[bool, ...]:
    """Return which demands are met, by one table of all offers for each."""
    granted, met = Counter[str](), []
    for demand in queue:
        more = granted + Counter(demand)
        met.append(all_offers(search.classes, tuple(more[kind] for kind in search.kinds)))
        granted = more if met[-1] else granted
    return tuple(met)


def all_offers(classes: Sequence[GpuClass], need: tuple[int, ...]) -> bool:
    """Report whether a need fits, GPU by GPU with the least cost of all that the GPUs before can offer together."""
    table = {tuple(0 for _ in need): tuple(0 for _ in classes[0].options[0][1])}
    for options in (each.options for each in classes for _ in range(each.count)):
        grown: dict[tuple[int, ...], tuple[int, ...]] = {}
        for offered, cost in table.items():
            for adds, more in options:
                state = tuple(min(n, a + b) for n, a, b in zip(need, offered, adds, strict=True))
                total = tuple(a + b for a, b in zip(cost, more, strict=True))
                if state not in grown or total < grown[state]:
                    grown[state] = total
        table = grown
    return need in table


def _cpu(act: Callable[[], object]) -> float:
    """Return the milliseconds of CPU that one call takes."""
    begin = thread_time()
    act()
    return (thread_time() - begin) * 1e3
