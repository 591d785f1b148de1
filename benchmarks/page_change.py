"""E13: what one change costs the page, beside drawing the whole page anew and beside reading every node anew."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

from benchmarks.bench_page import Watcher, World
from benchmarks.bench_process import cpu, cpu_ticks
from benchmarks.measure import Figure, Say, alternate, at_least, at_most, spread

from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.dashboard.local.shared_cache import SharedCache
from aliquot.sim.client import SimClient

PUSH_GOAL_MS = 500.0
"""What feels like at once."""
LESS_GOAL = 10.0
AFTER_S = 0.3
"""What a push leaves to be done."""
ONE = 50
"""Looks at one node in a row: the kernel counts the server's CPU in hundredths of a second."""


class Toggle:
    """A process on an idle instance of one node, which starts and ends."""

    def __init__(self, world: World, name: str) -> None:
        self._node = SimClient(world.state, name)
        inventory = NodeAccess(name, world.state, SharedCache()).observe().inventory
        found = ((gpu, i) for gpu in inventory.gpus for i in gpu.instances if not i.held)
        gpu, instance = next(found)
        self.gpu, self._instance = gpu.index, instance.id
        self._on = False

    def turn(self) -> float:
        """Starts or ends it; the wall time before that."""
        began = time.time()
        self._on = not self._on
        (self._node.hold if self._on else self._node.release)(self.gpu, self._instance)
        return began

    def close(self) -> None:
        if self._on:
            self.turn()
        self._node.close()


def pushes(say: Say, group: str, world: World, repeats: int) -> None:
    """A process appears on an instance of one node, or ends, while one looks at ``/``."""
    toggle = Toggle(world, world.names[len(world.names) // 2])
    delays: list[float] = []
    sizes: list[float] = []
    whole: list[float] = []
    pid = world.page.pid

    def pushed() -> float:
        with world.client.watching("/", world.client.get("/")[1]) as watcher:
            watcher.settle()
            return _cpu(pid, lambda: _one(toggle, watcher, delays, sizes))

    def anew() -> float:
        return _cpu(pid, lambda: whole.append(len(world.client.get("/")[1])))

    found = alternate(repeats, {"push": pushed, "anew": anew})
    toggle.close()
    name = "a process starts or ends on one instance, until what changed is at the browser's end of the wire"
    value, verdict = f"{median(delays):.0f} ms median", at_most(median(delays), PUSH_GOAL_MS)
    extent = spread(delays, ".0f", " ms")
    say(Figure(group, name, value, "simulated", f"<= {PUSH_GOAL_MS:g} ms", verdict, extent))
    _less(say, group, "bytes of what is pushed, beside the whole page anew", sizes, whole, "{:,.0f} bytes")
    name = "CPU of the page for it (node read, rows looked at, parts drawn), beside drawing the whole page anew"
    _less(say, group, name, found["push"], found["anew"], "{:.0f} ms")


def _one(toggle: Toggle, watcher: Watcher, delays: list[float], sizes: list[float]) -> None:
    heard = len(watcher.events)
    began = toggle.turn()
    event = watcher.next(heard)
    delays.append((event.at - began) * 1e3)
    sizes.append(event.size)
    time.sleep(AFTER_S)


def _cpu(pid: int, act: Callable[[], object]) -> float:
    """Milliseconds of the page's process meanwhile: its threads last."""
    before = cpu(pid)
    act()
    return (cpu(pid) - before) * 1e3


def _less(say: Say, group: str, name: str, ours: list[float], theirs: list[float], form: str) -> None:
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    value = f"{median(each):.1f}x less ({form.format(median(ours))} for {form.format(median(theirs))})"
    say(Figure(group, name, value, "simulated", spread=spread(each, ".1f")))


def reading(say: Say, group: str, world: World, repeats: int) -> None:
    """The same looks as the page takes, at every node, beside the one that it takes at the node that changed."""
    habit, names = SharedCache(), world.names
    spots = [NodeAccess(name, world.state, habit) for name in names]
    spots[0].observe()

    def every() -> float:
        return _looked(world, spots)

    def one() -> float:
        return _looked(world, [spots[len(spots) // 2]] * ONE) / ONE

    found = alternate(repeats, {"one": one, "every": every})
    ours, theirs = found["one"], found["every"]
    each = [b / a for a, b in zip(ours, theirs, strict=True)]
    value = f"{median(each):.0f}x less ({median(ours):.1f} ms for {median(theirs) / 1e3:.1f} s)"
    name = f"CPU of reading the node that changed, the simulator's server included, beside reading all {len(names):,}"
    goal, verdict = f">= {LESS_GOAL:g}x", at_least(median(each), LESS_GOAL)
    say(Figure(group, name, value, "simulated", goal, verdict, spread(each, ".0f")))


def _looked(world: World, spots: list[NodeAccess]) -> float:
    """Milliseconds of CPU of the server, whose threads come and go, and of this process."""
    began = time.process_time() + cpu_ticks(world.server)
    for spot in spots:
        spot.observe()
    return (time.process_time() + cpu_ticks(world.server) - began) * 1e3
