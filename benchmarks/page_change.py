"""E13: the cost of one change, compared with drawing the whole page again and with reading every node again."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from benchmarks.bench_page import Environment, Watcher
from benchmarks.bench_process import cpu, cpu_ticks
from benchmarks.measure import Figure, Report, alternate, at_least, at_most, spread

from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.dashboard.local.shared_cache import SharedCache
from aliquot.sim.client import SimClient

PUSH_GOAL_MS = 500.0
"""Milliseconds that feel immediate."""
LESS_GOAL = 10.0
AFTER_S = 0.3
"""By how much a push must be cheaper than the baselines."""
ONE = 50
"""Observations of one node in a row: the kernel counts the server's CPU in hundredths of a second."""


class Toggle:
    """A process on an idle instance of one node, which starts and ends."""

    def __init__(self, environment: Environment, name: str) -> None:
        self._node = SimClient(environment.state, name)
        inventory = NodeAccess(name, environment.state, SharedCache()).observe().inventory
        found = ((gpu, i) for gpu in inventory.gpus for i in gpu.instances if not i.held)
        gpu, instance = next(found)
        self.gpu, self._instance = gpu.index, instance.id
        self._on = False

    def turn(self) -> float:
        """Start or end the process, and return the wall time before that."""
        began = time.time()
        self._on = not self._on
        (self._node.hold if self._on else self._node.release)(self.gpu, self._instance)
        return began

    def close(self) -> None:
        if self._on:
            self.turn()
        self._node.close()


def pushes(report: Report, group: str, environment: Environment, repeats: int) -> None:
    """Measure the pushes when a process starts or ends on an instance of one node while ``/`` is open."""
    toggle = Toggle(environment, environment.names[len(environment.names) // 2])
    delays: list[float] = []
    sizes: list[float] = []
    whole: list[float] = []
    pid = environment.page.pid

    def pushed() -> float:
        with environment.client.watching("/", environment.client.get("/")[1]) as watcher:
            watcher.settle()
            return _cpu(pid, lambda: _one(toggle, watcher, delays, sizes))

    def repeat() -> float:
        return _cpu(pid, lambda: whole.append(len(environment.client.get("/")[1])))

    found = alternate(repeats, {"push": pushed, "anew": repeat})
    toggle.close()
    name = "a process starts or ends on one instance, until what changed is at the browser's end of the wire"
    value, verdict = f"{median(delays):.0f} ms median", at_most(median(delays), PUSH_GOAL_MS)
    extent = spread(delays, ".0f", " ms")
    report(Figure(group, name, value, "simulated", f"<= {PUSH_GOAL_MS:g} ms", verdict, extent))
    _less(report, group, "bytes that are pushed, against the whole page", sizes, whole, "{:,.0f} bytes")
    name = "CPU of the page for it (node read, rows looked at, parts drawn), against drawing the whole page"
    _less(report, group, name, found["push"], found["anew"], "{:.0f} ms")


def _one(toggle: Toggle, watcher: Watcher, delays: list[float], sizes: list[float]) -> None:
    heard = len(watcher.events)
    began = toggle.turn()
    event = watcher.next(heard)
    delays.append((event.at - began) * 1e3)
    sizes.append(event.size)
    time.sleep(AFTER_S)


def _cpu(pid: int, act: Callable[[], object]) -> float:
    """Return the CPU milliseconds of the page's process during a call. Its threads do not end."""
    before = cpu(pid)
    act()
    return (cpu(pid) - before) * 1e3


def _less(report: Report, group: str, name: str, ours: list[float], theirs: list[float], form: str) -> None:
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    value = f"{median(each):.1f}x less ({form.format(median(ours))} for {form.format(median(theirs))})"
    report(Figure(group, name, value, "simulated", spread=spread(each, ".1f")))


def reading(report: Report, group: str, environment: Environment, repeats: int) -> None:
    """Compare observing every node with observing only the node that changed, as the page does."""
    cache, names = SharedCache(), environment.names
    accesses = [NodeAccess(name, environment.state, cache) for name in names]
    accesses[0].observe()

    def every() -> float:
        return _observed_s(environment, accesses)

    def one() -> float:
        return _observed_s(environment, [accesses[len(accesses) // 2]] * ONE) / ONE

    found = alternate(repeats, {"one": one, "every": every})
    ours, theirs = found["one"], found["every"]
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    value = f"{median(each):.0f}x less ({median(ours):.1f} ms for {median(theirs) / 1e3:.1f} s)"
    name = f"CPU of reading the node that changed, the simulator's server included, beside reading all {len(names):,}"
    goal, verdict = f">= {LESS_GOAL:g}x", at_least(median(each), LESS_GOAL)
    report(Figure(group, name, value, "simulated", goal, verdict, spread(each, ".0f")))


def _observed_s(environment: Environment, accesses: list[NodeAccess]) -> float:
    """Return the CPU milliseconds of the server, whose threads come and go, and of this process."""
    began = time.process_time() + cpu_ticks(environment.server)
    for access in accesses:
        access.observe()
    return (time.process_time() + cpu_ticks(environment.server) - began) * 1e3
