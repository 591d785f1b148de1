"""E6: the overhead of the engine over the raw calls, on a simulated node behind the NVML library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from statistics import median
from time import process_time

import msgspec
from benchmarks.bench_node import Layout, Node, started
from benchmarks.measure import Figure, Report, alternate, at_most, clock, digest, ratio, spread

from aliquot.core.model.plan import Plan

GROUP = "E6 software over raw calls"
TEMPLATE = "dgx-h100"
OVER_GOAL = 1.05
WIDE_GOAL = 1.1
CPU_GOAL_MS = 20.0

_3G, _2G, _1G, _4G, _7G = "3g.40gb", "2g.20gb", "1g.10gb", "4g.40gb", "7g.80gb"
_SEVEN: Layout = tuple((_1G, n) for n in range(7))
_FOUR_THREE: Layout = ((_4G, 0), (_3G, 4))
SHAPES: dict[str, tuple[Layout, Layout]] = {
    "idle repartition, 3g to 2g beside a kept 4g": (_FOUR_THREE, ((_4G, 0), (_2G, 4))),
    "half, 3g to 2g+1g beside a kept 3g": (((_3G, 0), (_3G, 4)), ((_3G, 0), (_2G, 4), (_1G, 6))),
    "full rebuild, 7g to 7 x 1g": (((_7G, 0),), _SEVEN),
}
"""Start and goal. Each is also measured in reverse, which makes six plans from idle repartition to full rebuild."""


def run(report: Report, quick: bool) -> None:
    code = digest(msgspec.json.encode([TEMPLATE, list(SHAPES.items())]))
    report(Figure(GROUP, f"8 GPUs of {TEMPLATE}, {2 * len(SHAPES)} plans: input", f"sha256 {code}", "simulated"))
    with node("measured") as found:
        for title, (previous, latter) in SHAPES.items():
            _measured(report, found, title, previous, latter, 2 if quick else 5)
        _wide(report, found, 2 if quick else 5)
        _busy(report, found, 2 if quick else 5)
    with node("none") as found:
        _bare(report, found, 3 if quick else 15)


@contextmanager
def node(latency: str) -> Iterator[Node]:
    with started(TEMPLATE, latency) as (state_dir, name), closing(Node(state_dir, name)) as found:
        found.enable()
        yield found


def _there(node: Node, layout: Layout, count: int) -> Plan:
    return node.plan(dict.fromkeys(node.pcis[:count], layout))


def _go(node: Node, layout: Layout, count: int = 8) -> None:
    """Set the layout of GPUs by the raw loop, untimed."""
    made = _there(node, layout, count)
    if made.actions:
        node.loop(made)


def _sides(node: Node, start: Layout, goal: Layout, count: int) -> dict[str, Callable[[], float]]:
    """Return the engine and the raw loop, each from ``start`` to ``goal`` by the same plan."""

    def timed(execute: Callable[[Plan], object]) -> float:
        _go(node, start)
        made = _there(node, goal, count)
        return clock(lambda: execute(made))

    return {"engine": lambda: timed(node.apply), "raw": lambda: timed(node.loop)}


def _measured(report: Report, node: Node, title: str, previous: Layout, latter: Layout, repeats: int) -> None:
    """Compare ``engine.apply`` with the same calls in a plain loop, with the latencies of real calls."""
    for name, start, goal in ((title, previous, latter), (f"{title}, and back", latter, previous)):
        found = alternate(repeats, _sides(node, start, goal, 8))
        over, ratios = ratio(found["engine"], found["raw"])
        value = f"{over:.3f}x ({median(found['engine']):.2f} s over {median(found['raw']):.2f} s)"
        verdict = at_most(over, OVER_GOAL)
        extent = spread(ratios, ".3f")
        report(Figure(GROUP, f"8 GPUs, {name}", value, "simulated", f"<= {OVER_GOAL}x", verdict, extent))


def _wide(report: Report, node: Node, repeats: int) -> None:
    """Compare eight GPUs of different work with the one that has the most work."""
    layouts = dict(zip(node.pcis, [_SEVEN, _FOUR_THREE, *[((_3G, 0), (_2G, 4))] * 3, *[((_2G, 0),)] * 3], strict=True))
    slowest = node.pcis[0]

    def timed(pcis: list[str]) -> float:
        _go(node, ((_7G, 0),))
        made = node.plan({pci: layouts[pci] for pci in pcis})
        return clock(lambda: node.apply(made))

    found = alternate(repeats, {"eight": lambda: timed(node.pcis), "one": lambda: timed([slowest])})
    over, ratios = ratio(found["eight"], found["one"])
    value = f"{over:.3f}x ({median(found['eight']):.2f} s over {median(found['one']):.2f} s)"
    goal, verdict, extent = f"<= {WIDE_GOAL}x", at_most(over, WIDE_GOAL), spread(ratios, ".3f")
    report(Figure(GROUP, "8 GPUs at once over the slowest of them alone", value, "simulated", goal, verdict, extent))


def _busy(report: Report, node: Node, repeats: int) -> None:
    """Measure a change after a process has ended, while the driver reports "in use" for 0.3 s more."""
    late: list[float] = []
    for _ in range(repeats):
        _go(node, ((_3G, 0), (_3G, 4)))
        plain = _there(node, ((_3G, 0), (_2G, 4)), 1)
        calm = clock(lambda plan=plain: node.apply(plan))  # type: ignore[misc]
        _go(node, ((_3G, 0), (_3G, 4)))
        made = _there(node, ((_3G, 0), (_2G, 4)), 1)
        node.sim.inject_fault("busy", gpu=0, seconds=0.3)
        late.append(clock(lambda plan=made: node.apply(plan)) - calm)  # type: ignore[misc]
    name = 'one GPU, "in use" for 0.3 s at the first destroy: time added (done, not failed)'
    report(Figure(GROUP, name, f"{median(late):.2f} s", "simulated", spread=spread(late, ".2f", " s")))


def _bare(report: Report, node: Node, repeats: int) -> None:
    """Measure without latency, so that only software remains: Aliquot's and the simulator's."""
    start, goal = SHAPES["full rebuild, 7g to 7 x 1g"]
    for count in (1, 8):
        found = alternate(repeats, _sides(node, start, goal, count))
        cpu, calls, writes = _accounts(node, start, goal, count, repeats)
        extra = [(a - b) / writes * 1e6 for a, b in zip(found["engine"], found["raw"], strict=True)]
        title = f"no latency, {count} GPU{'s' if count > 1 else ''}, 7g to 7 x 1g"
        value = f"{median(extra):.0f} us ({median(cpu) * 1e6 / writes:.0f} us own CPU)"
        name = f"{title}: engine over raw loop, wall per NVML write call"
        report(Figure(GROUP, name, value, "simulated", spread=spread(extra, ".0f", " us")))
        value = f"{calls} calls, {writes} of them writes ({calls / writes:.1f} per write)"
        report(Figure(GROUP, f"{title}: NVML calls of an apply", value, "simulated"))
        own = [c / count * 1e3 for c in cpu]
        name, verdict = f"{title}: own CPU per GPU", at_most(median(own), CPU_GOAL_MS)
        extent = spread(own, ".1f", " ms")
        report(Figure(GROUP, name, f"{median(own):.1f} ms", "simulated", f"<= {CPU_GOAL_MS:g} ms", verdict, extent))


def _accounts(node: Node, start: Layout, goal: Layout, count: int, repeats: int) -> tuple[list[float], int, int]:
    """Return the CPU seconds of this process for each apply, and the NVML calls and write calls of one apply."""
    cpu: list[float] = []
    calls = writes = 0
    for _ in range(repeats):
        _go(node, start)
        made = _there(node, goal, count)
        mark, begin = node.logged(), process_time()
        node.apply(made)
        cpu.append(process_time() - begin)
        calls, writes = node.calls_since(mark)
    return cpu, calls, writes
