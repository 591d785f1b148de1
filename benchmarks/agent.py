"""E8: one node agent, idle and busy, beside clusters of several sizes.

The agent is the real process on a simulated node; the API server is the suite's stand-in, in a process of its own
(``bench_cluster``). All agents are measured in the same span of time, so that other load on the host affects all.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from statistics import median
from tempfile import TemporaryDirectory

import msgspec
from benchmarks import agent_spans as spans
from benchmarks.agent_nodes import ALONE, CHURN, EIGHT, KINDS, RAW, SHAPES, all_at_once, title
from benchmarks.agent_nodes import subjects as nodes
from benchmarks.agent_spans import GROUP
from benchmarks.bench_agent import RawSide, Subject, start_nodes
from benchmarks.bench_process import cpu_ticks, memory, threads
from benchmarks.measure import Figure, Report, at_most, digest, load, spread

from aliquot.sim import lifecycle as control

MEMORY_GOAL_MIB = 40.0
POLL_GOAL_MS = 1.0
IDLE_S = 400.0
"""Longer than the interval of the node's document when only the usage changes, so that it would include a write."""


def run(report: Report, quick: bool) -> None:
    report(load(GROUP))
    code = digest(msgspec.json.encode([KINDS, SHAPES, CHURN]))
    report(
        Figure(GROUP, "input: the nodes, the named configs, the changes of other nodes", f"sha256 {code}", "simulated")
    )
    repeats = 1 if quick else 10
    with ExitStack() as stack:
        state = stack.enter_context(TemporaryDirectory(prefix="aliquot-bench-"))
        stack.callback(control.stop, state)
        start_nodes(state, {RAW: EIGHT} | {name: kind.template for name, kind in KINDS.items()})
        raw = stack.enter_context(closing(RawSide(state, RAW)))
        subjects = nodes(stack, state)
        _starts(report, subjects[ALONE], 1 if quick else 5)
        all_at_once(subjects.values(), Subject.start)
        time.sleep(1 if quick else 5)
        _memories(report, subjects, "of one that was idle", dict.fromkeys(subjects, 0))
        spans.idle(report, subjects, 2.0 if quick else IDLE_S)
        spans.reconnects(report, subjects[ALONE])
        _poll(report, raw, 50 if quick else 500)
        spans.latency(report, subjects[ALONE], raw, repeats)
        spans.busy(report, subjects, repeats)
        _memories(
            report, subjects, "of one that was busy", {name: repeats * (2 if name == ALONE else 1) for name in subjects}
        )
    _peers(report)


def _starts(report: Report, subject: Subject, repeats: int) -> None:
    """Measure starts. The first start writes byte code and does not count."""
    took, used = [], []
    for n in range(repeats + 1):
        seconds = subject.start()
        if n:
            took.append(seconds)
            used.append(cpu_ticks(subject.pid))
        subject.stop()
    value = f"{median(took):.2f} s, {median(used):.2f} s CPU"
    report(
        Figure(GROUP, "process start to first status on the node", value, "simulated", spread=spread(took, ".2f", " s"))
    )


def _memories(report: Report, subjects: dict[str, Subject], when: str, done: dict[str, int]) -> None:
    """Report the memory of each agent. ``done``: the number of its repartitions."""
    for name, each in subjects.items():
        found = memory(each.pid)
        head, extent = f"memory {when}: {title(name)}", f"after {done[name]} repartitions, {threads(each.pid)} threads"
        goal, verdict = f"<= {MEMORY_GOAL_MIB:g} MiB", at_most(found.pss, MEMORY_GOAL_MIB)
        report(Figure(GROUP, head, str(found), "simulated", goal, verdict, extent))


def _poll(report: Report, raw: RawSide, times: int) -> None:
    spent = raw.poll(times) * 1e3
    name, goal = "health of 8 GPUs, asked once a second: CPU of one look", f"<= {POLL_GOAL_MS:g} ms"
    report(Figure(GROUP, name, f"{spent:.3f} ms", "simulated", goal, at_most(spent, POLL_GOAL_MS), f"n={times}"))


def _peers(report: Report) -> None:
    """Report figures of other projects from other hosts, for the order of magnitude. No goal depends on them."""
    quoted = {
        "HAMi's node agent, as its sizing guide reserves memory (2026-08)": "256 MiB to 1 GiB",
        "mig-manager's shortest pass on fakes without latency, 4 s of it a fixed wait": "about 6 s",
    }
    for name, value in quoted.items():
        report(Figure(GROUP, name, value, "quoted"))
