"""The time spans of E8: the work of all agents in the same span, idle and while they repartition."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import msgspec
from benchmarks.agent_nodes import ALONE, CHURN, KINDS, SHAPES, all_at_once, title
from benchmarks.bench_agent import RawSide, Subject
from benchmarks.bench_cluster import ClusterServer
from benchmarks.bench_process import cpu, cpu_ticks
from benchmarks.measure import Figure, Report, at_most, ratio, spread

from aliquot.kubernetes.client.watch import DEFAULT_TIMING
from aliquot.kubernetes.node_agent.document_publisher import PublishPace

TICK_S = 0.01
"""The kernel counts the CPU of a process in ticks of this length."""
GROUP = "E8 one agent"
LATENCY_GOAL = 1.5
FLAT_GOAL = 1.1
_WRITES = ("create", "update", "patch", "delete", "apply")


class Span(msgspec.Struct, frozen=True):
    """The work of one agent in a span of time.

    ``requests`` are by verb and resource, ``down`` is bytes received, ``changes`` are those of other nodes.
    """

    seconds: float
    cpu: float
    requests: dict[str, int]
    down: int
    changes: int

    @property
    def writes(self) -> int:
        return sum(n for name, n in self.requests.items() if name.partition(" ")[0] in _WRITES)


def _spans(subjects: dict[str, Subject], used: Callable[[int], float], act: Callable[[], object]) -> dict[str, Span]:
    """Measure one span for all agents while other nodes change. ``used`` returns a process's CPU seconds so far."""
    for subject in subjects.values():
        subject.cluster.do(ClusterServer.churn, CHURN)
    before = {name: (time.perf_counter(), used(s.pid), s.traffic()) for name, s in subjects.items()}
    act()
    spans = {}
    for name, subject in subjects.items():
        began, previous, reported = before[name]
        seconds, spent, now = time.perf_counter() - began, used(subject.pid) - previous, subject.traffic()
        requests = dict(Counter(now["requests"]) - Counter(reported["requests"]))
        down, changes = (now[word] - reported[word] for word in ("down", "changes"))
        spans[name] = Span(seconds, spent, requests, down, changes)
        subject.cluster.do(ClusterServer.churn, 0)
    return spans


def idle(report: Report, subjects: dict[str, Subject], seconds: float) -> None:
    """Measure agents without requests."""
    streams = subjects[ALONE].streams
    spans = _spans(subjects, cpu, lambda: time.sleep(seconds))
    writes = sum(span.writes for span in spans.values())
    text = f"{writes} in {seconds:.0f} s of {len(spans)} agents"
    report(Figure(GROUP, "API writes while idle", text, "simulated", "0", at_most(writes, 0)))
    _paced(report)
    _hour(report, streams, spans[ALONE])
    for name, span in spans.items():
        minute = 60 / span.seconds
        value = f"{span.cpu * minute * 1e3:.0f} ms CPU, {span.down * minute / 1024:.1f} KiB received"
        extent = f"over {span.seconds:.0f} s, {span.changes} changes of other nodes"
        report(Figure(GROUP, f"an idle minute: {title(name)}", value, "simulated", spread=extent))
    _flat(report, "an idle minute", spans)


def _paced(report: Report) -> None:
    """Report the write limit of the node's document, which follows processes on GPUs with a delay."""
    pace = PublishPace()
    name = "API writes in an hour without requests, while processes come and go, or use more or less"
    value = f"at most {3600 / pace.holders_s:.0f}, or {3600 / pace.usage_s:.0f} where they only use more or less"
    report(Figure(GROUP, name, value, "simulated", spread="the node's document, by its timing"))


def _hour(report: Report, streams: int, span: Span) -> None:
    """Report the requests of an hour, extrapolated. Watches only reconnect, after ``shortest_s`` to ``longest_s``."""
    mean = (DEFAULT_TIMING.shortest_s + DEFAULT_TIMING.longest_s) / 2
    reconnects = streams * 3600 / mean
    others = sum(n for name, n in span.requests.items() if not name.startswith("watch "))
    pace = PublishPace()
    checks = 3600 / pace.check_s
    value = (
        f"{others * 3600 / span.seconds + reconnects + checks:.0f}: {streams} watches opened again every {mean:.0f} s, "
        f"the node's document read every {pace.check_s:.0f} s"
    )
    extent = f"{others} requests in {span.seconds:.0f} s, extrapolated; reconnects and readings by their timing"
    report(Figure(GROUP, "API requests in an idle hour", value, "simulated", spread=extent))


def reconnects(report: Report, subject: Subject) -> None:
    """Count the requests after the server ends every watch, as it does in a roll-out."""
    before = Counter(subject.traffic()["requests"])
    subject.cluster.do(ClusterServer.drop)
    time.sleep(2)
    found = Counter(subject.traffic()["requests"]) - before
    text = ", ".join(f"{n} {name}" for name, n in sorted(found.items()))
    report(Figure(GROUP, "API requests after all watches were cut", text or "none", "simulated"))


def latency(report: Report, subject: Subject, raw: RawSide, repeats: int) -> None:
    """Measure label to success, in turn with the driver's calls for the same change."""
    sides: dict[str, Callable[[str], float]] = {"ours": subject.request, "theirs": raw.request}
    took: dict[str, list[float]] = {side: [] for side in sides}
    for n in range(repeats):
        for side in list(sides) if n % 2 == 0 else list(sides)[::-1]:
            took[side].append(sides[side](SHAPES[n % 2]))
            time.sleep(0.5)
    ours, theirs = took["ours"], took["theirs"]
    over, each = ratio(ours, theirs)
    middle = sorted(ours)[len(ours) // 2]
    name = f"label to success, {' and '.join(SHAPES)} in turn on 8 GPUs, over the raw driver calls"
    value = f"{over:.2f}x (p50 {middle:.2f} s over {sorted(theirs)[len(theirs) // 2]:.2f} s)"
    extent = spread(each, ".2f")
    report(Figure(GROUP, name, value, "simulated", f"<= {LATENCY_GOAL}x", at_most(over, LATENCY_GOAL), extent))
    extra = [(a - b) * 1e3 for a, b in zip(ours, theirs, strict=True)]
    name = "label to success, less the raw driver calls"
    report(
        Figure(GROUP, name, f"{sorted(extra)[len(extra) // 2]:.0f} ms", "simulated", spread=spread(extra, ".0f", " ms"))
    )


def busy(report: Report, subjects: dict[str, Subject], repeats: int) -> None:
    """Measure repartitions on all nodes at once."""

    def several(subject: Subject) -> None:
        for n in range(repeats):
            subject.request(SHAPES[n % 2])

    def act() -> None:
        all_at_once(subjects.values(), several)
        time.sleep(1)

    spans = _spans(subjects, cpu_ticks, act)
    for name, span in spans.items():
        cost = f"{span.cpu / repeats * 1e3:.0f} ms CPU, {span.down / repeats / 1024:.1f} KiB received"
        value = f"{span.writes / repeats:.1f} API writes, {cost}"
        extent = f"n={repeats}; " + ", ".join(f"{n / repeats:.1f} {what}" for what, n in sorted(span.requests.items()))
        report(Figure(GROUP, f"a repartition: {title(name)}", value, "simulated", spread=extent))
    _flat(report, "a repartition", spans)


def _flat(report: Report, what: str, spans: dict[str, Span]) -> None:
    """Compare agents in clusters with many other nodes with one alone."""
    for name in (name for name in spans if KINDS[name].others):
        span, base = spans[name], spans[ALONE]
        # In a short span the agent alone may receive nothing, and use less than the kernel counts.
        bytes_ = (span.down / span.seconds) / (max(base.down, 1) / base.seconds)
        used = span.cpu / max(base.cpu, TICK_S)
        text = f"{bytes_:.2f}x bytes received, {used:.2f}x CPU"
        head = f"{what} beside {KINDS[name].others:,} nodes with {CHURN:g} changes a second, over alone"
        report(Figure(GROUP, head, text, "simulated", f"bytes <= {FLAT_GOAL}x", at_most(bytes_, FLAT_GOAL)))
