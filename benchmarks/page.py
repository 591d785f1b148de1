"""E13: the page over 1,000 simulated nodes of 8 GPUs, with the real programs and a real browser.

Two baselines are taken in the same run: drawing the whole page again for each change, and reading every node again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from statistics import median

import msgspec
from benchmarks import page_browser, page_change
from benchmarks.bench_page import GPUS, LAYOUTS, TEMPLATE, Client, Dashboard, Environment, fleet, simulator
from benchmarks.bench_process import cpu_ticks, memory
from benchmarks.measure import Figure, Report, at_most, clock, digest, load, spread

from aliquot.sim import lifecycle as control

GROUP = "E13 the page"
NODES = 1000
STARTS = 3
PAGE_GOAL_MS = 100.0
"""Milliseconds of an answer that feels immediate."""


def run(report: Report, quick: bool) -> None:
    count, repeats = (50, 3) if quick else (NODES, 15)
    code = digest(msgspec.json.encode([TEMPLATE, GPUS, count, LAYOUTS]))
    report(load(GROUP))
    text = f"{count:,} nodes of {GPUS} GPUs, cut in four ways, half of the instances held"
    _report(report, f"input: {text}", f"sha256 {code}")
    with fleet(count) as (state, took):
        _report(report, f"aliquot sim start {TEMPLATE} --count {count}, the whole command", f"{took:.1f} s")
        names = control.names(state)
        server = simulator(state)
        took_all = []
        for _ in range(1 if quick else STARTS - 1):
            page, client, complete = _start(state, names)
            took_all.append(complete)
            client.close()
            page.close()
        page, client, complete = _start(state, names)
        took_all.append(complete)
        try:
            name = "the page: process start until all nodes are shown"
            _report(report, name, f"{median(took_all):.1f} s median", spread(took_all, ".1f", " s"))
            _memory(report, "of the page, no page open", page.pid)
            _memory(report, "of the simulator's server", server)
            _idle(report, client, (page.pid, server), 3.0 if quick else 30.0)
            _answers(report, client, names, repeats)
            environment = Environment(state, page, client, server)
            page_change.pushes(report, GROUP, environment, repeats)
            page_change.reading(report, GROUP, environment, min(repeats, 5))
            page_browser.run(report, GROUP, environment, repeats)
            _memory(report, "of the page after all this", page.pid)
        finally:
            client.close()
            page.close()


def _start(state: str, names: Sequence[str]) -> tuple[Dashboard, Client, float]:
    """Start the page, wait until it shows the node that is read last, then request the whole page."""
    page = Dashboard(state)
    client = Client(page.link)
    while client.get(f"/pictures/{names[-1]}")[0] != 200:
        time.sleep(0.02)
    complete = time.perf_counter() - page.began
    shown = client.get("/")[1].count(b'role="rowheader"')
    assert shown == len(names), f"{shown} of {len(names)} nodes are shown"
    return page, client, complete


def _idle(report: Report, client: Client, pids: tuple[int, int], seconds: float) -> None:
    """Measure the CPU time of the page and of the simulator's server, without a client and with one."""
    for name, watched in (("no page open", False), ("one page open at /", True)):
        if watched:
            with client.watching("/", client.get("/")[1]) as watcher:
                watcher.settle()
                spent = _spent(pids, seconds)
                beats = [event.name for event in watcher.events].count("beat")
        else:
            time.sleep(2)
            spent, beats = _spent(pids, seconds), 0
        page, server = (each * 60 / seconds for each in spent)
        value = f"{page:.2f} s CPU of the page, {server:.2f} s of the simulator's server"
        _report(report, f"an idle minute, {name}", value, f"over {seconds:.0f} s, {beats} signs of life")


def _spent(pids: tuple[int, int], seconds: float) -> list[float]:
    before = [cpu_ticks(pid) for pid in pids]
    time.sleep(seconds)
    return [cpu_ticks(pid) - was for pid, was in zip(pids, before, strict=True)]


def _answers(report: Report, client: Client, names: Sequence[str], repeats: int) -> None:
    """Measure whole pages over a connection that stays open; the first two of each warm up."""
    first = re.search(rb'href="(/nodes/[^"/]+/gpus/[^"]+)"', client.get(f"/nodes/{names[0]}")[1])
    assert first is not None
    pages = {
        f"/ with {len(names):,} nodes": ("/", 0.0),
        "/?show=closable, those with holes to close": ("/?show=closable", 0.0),
        f"a node of {GPUS} GPUs with 7 instances each": (f"/nodes/{names[0]}", PAGE_GOAL_MS),
        "one GPU with 7 instances": (first[1].decode(), PAGE_GOAL_MS),
        "the pictures of one row": (f"/pictures/{names[0]}", PAGE_GOAL_MS),
        f"/metrics over {len(names):,} nodes": ("/metrics", PAGE_GOAL_MS),
    }
    for name, (path, goal) in pages.items():
        status, body = client.get(path)
        if status != 200:
            raise AssertionError(f"{path}: {status}")
        took = [clock(lambda path=path: client.get(path)) * 1e3 for _ in range(repeats + 2)][2:]  # type: ignore[misc]
        verdict, limit = (at_most(median(took), goal), f"<= {goal:g} ms") if goal else ("-", "")
        value = f"{median(took):.1f} ms median, {len(body):,} bytes"
        report(
            Figure(GROUP, f"request to answer: {name}", value, "simulated", limit, verdict, spread(took, ".1f", " ms"))
        )


def _memory(report: Report, whose: str, pid: int) -> None:
    found = memory(pid)
    _report(report, f"memory {whose}", f"{found.rss:.0f} MiB resident, {found.own:.0f} its own")


def _report(report: Report, name: str, value: str, extent: str = "") -> None:
    report(Figure(GROUP, name, value, "simulated", spread=extent))
