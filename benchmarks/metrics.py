"""E14: the metrics for Prometheus, and the usage of instances, on 8 simulated GPUs with seven instances each.

A page that is written once per sample is compared with one that is rewritten for each scrape.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
from benchmarks.bench_page import FULL, GPUS, TEMPLATE
from benchmarks.bench_process import cpu, memory
from benchmarks.measure import Figure, Report, alternate, at_least, at_most, clock, digest, load, spread

from aliquot.metrics import instruments as make
from aliquot.metrics.gpu_samples import GpuCollector
from aliquot.metrics.page import MetricsPage
from aliquot.metrics.snapshot import NodeSnapshot, SnapshotDetails
from aliquot.node.connect import connect
from aliquot.node.usage_tracker import UsageTracker
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

GROUP = "E14 figures for Prometheus"
SCRAPE_GOAL_MS, LESS_GOAL = 10.0, 5.0
"""Milliseconds that a page may take without being noticed; by how much a scrape must be cheaper than a rewrite."""
NAME = "node"
KINDS = {
    "OpenMetrics": {"accept": "application/openmetrics-text; version=1.0.0"},
    "classic text": {"accept": "text/plain"},
    "classic text, compressed": {"accept": "text/plain", "accept-encoding": "gzip"},
}


def run(report: Report, quick: bool) -> None:
    repeats = 5 if quick else 100
    report(load(GROUP))
    code = digest(msgspec.json.encode([TEMPLATE, GPUS, FULL]))
    _report(report, f"input: {GPUS} GPUs x {len(FULL)} instances, half of them held", f"sha256 {code}")
    with TemporaryDirectory(prefix="aliquot-bench-") as state:
        try:
            _cut(state)
            observation = _observe_lines(report, state, 3 if quick else 15)
            _scrapes(report, observation, repeats)
            _process(report, state, repeats, 5.0 if quick else 60.0)
            _verbs(report, state, 2 if quick else 10)
        finally:
            control.stop(state)


def _cut(state: str) -> None:
    control.start(state, TEMPLATE, NAME)
    node = SimClient(state, NAME)
    for gpu in range(GPUS):
        node.set_mode(gpu, True)
        for instance in [node.create(gpu, profile) for profile in FULL][::2]:
            node.hold(gpu, instance)
    node.close()


def _observe_lines(report: Report, state: str, repeats: int) -> NodeSnapshot:
    """Measure a sample with and without usage. The driver's measuring interval is zero here."""
    with connect(NAME, state_dir=state) as connection:
        watch = UsageTracker(connection, persist=False)
        inventory = connection.backend.read()
        usage = watch.sample(connection, inventory)

        def spent(act: Callable[[], object]) -> Callable[[], float]:
            def timed() -> float:
                began = time.process_time()
                act()
                return (time.process_time() - began) * 1e3

            return timed

        sides = {"read": spent(connection.backend.read), "use": spent(lambda: watch.sample(connection, inventory))}
        found = alternate(repeats, sides)
    for side, what in (("read", "of reading the GPUs"), ("use", "of reading what is used, with memory and rates")):
        _report(report, f"CPU {what}", f"{median(found[side]):.1f} ms", spread(found[side], ".1f", " ms"))
    return NodeSnapshot(NAME, inventory, SnapshotDetails(time.time(), usage))


def _scrapes(report: Report, observation: NodeSnapshot, repeats: int) -> None:
    """Compare, in turn, the page that is written once per sample with one that is written for each scrape."""
    kept = MetricsPage(make.registry(), GpuCollector(lambda: (observation,)), lambda: 1)
    rebuilt = MetricsPage(make.registry(), GpuCollector(lambda: (observation,)), lambda: None)
    body = kept.text()
    series = _series(body)
    per = (series - _series(MetricsPage(make.registry()).text())) / GPUS
    extent = f"{len(body):,} bytes, {len(gzip.compress(body, 1)):,} compressed"
    _report(report, "series of the page", f"{series:,}, of them {per:.0f} for each GPU", extent)
    for kind, headers in KINDS.items():

        def one(page: MetricsPage, headers: dict[str, str] = headers) -> Callable[[], float]:
            return lambda: clock(lambda: page.render(headers)) * 1e3

        found = alternate(repeats, {"kept": one(kept), "anew": one(rebuilt)})
        ours, theirs = found["kept"][1:], found["anew"][1:]
        each = [b / a for a, b in zip(ours, theirs, strict=True)]
        value = f"{median(each):.0f}x less ({median(ours):.2f} ms for {median(theirs):.1f} ms)"
        goal, verdict = f">= {LESS_GOAL:g}x", at_least(median(each), LESS_GOAL)
        if "compressed" in kind:
            goal, verdict = "", "-"
        name = f"a scrape between two looks, {kind}, against one that is rewritten"
        report(Figure(GROUP, name, value, "measured", goal, verdict, spread(each, ".1f")))


def _series(body: bytes) -> int:
    return sum(not line.startswith(b"#") for line in body.splitlines())


@contextmanager
def _served(state: str) -> Iterator[tuple[int, HTTPConnection]]:
    """Run ``aliquot metrics --listen``, and yield its pid and a connection to it."""
    words = [sys.executable, "-u", "-m", "aliquot", "metrics", "--listen", "127.0.0.1:0", "--sim", NAME]
    environment = {**os.environ, "ALIQUOT_STATE_DIR": state}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline().decode()
            address = line.partition("http://")[2].partition("/")[0]
            if not address:
                raise AssertionError(f"the command printed no address: {line}")
            connection = HTTPConnection(address, timeout=60)
            yield process.pid, connection
            connection.close()
        finally:
            process.terminate()


def _process(report: Report, state: str, repeats: int, seconds: float) -> None:
    with _served(state) as (pid, connection):

        def scrape() -> None:
            connection.request("GET", "/metrics", headers={"accept-encoding": "gzip"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 200

        scrape()
        took = [clock(scrape) * 1e3 for _ in range(repeats)]
        value, verdict = f"{median(took):.1f} ms median", at_most(median(took), SCRAPE_GOAL_MS)
        name, extent = "aliquot metrics --listen: request to answer", spread(took, ".1f", " ms")
        report(Figure(GROUP, name, value, "simulated", f"<= {SCRAPE_GOAL_MS:g} ms", verdict, extent))
        before = cpu(pid)
        time.sleep(seconds)
        spent = (cpu(pid) - before) * 60 / seconds
        name = "aliquot metrics --listen: CPU of a minute, a sample each 15 s, no client"
        _report(report, name, f"{spent:.2f} s", f"over {seconds:.0f} s")
        found = memory(pid)
        value = f"{found.rss:.1f} MiB resident, {found.own:.1f} its own"
        _report(report, "aliquot metrics --listen: memory", value)


def _verbs(report: Report, state: str, repeats: int) -> None:
    """Measure whole commands in turn. The time of ``usage`` includes 0.25 s of measuring."""

    def timed(verb: str) -> Callable[[], float]:
        words = [sys.executable, "-m", "aliquot", verb, "--sim", NAME]
        environment = {**os.environ, "ALIQUOT_STATE_DIR": state}
        return lambda: clock(lambda: subprocess.run(words, env=environment, check=True, capture_output=True))

    found = alternate(repeats, {verb: timed(verb) for verb in ("usage", "show", "metrics")})
    for verb, took in found.items():
        name = f"aliquot {verb}, the whole command"
        _report(report, name, f"{median(took):.2f} s median", spread(took, ".2f", " s"))


def _report(report: Report, name: str, value: str, extent: str = "") -> None:
    report(Figure(GROUP, name, value, "simulated", spread=extent))
