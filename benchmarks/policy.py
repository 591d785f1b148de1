"""E11: demand served under Slurm by the controller's layouts on demand, in virtual time.

The controller's own rounds decide, with its default settings. Slurm is a model that starts jobs in the order of
recorded clusters, and a change takes recorded times, so the figures depend on no clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec
from benchmarks.measure import Figure, Report, at_least, at_most, digest
from benchmarks.policy_bounds import bound, optimum
from benchmarks.policy_cases import Case, CaseJob, large, small, trace
from benchmarks.policy_simulation import BOARD, DYNAMIC, KINDS, STATIC, Simulation

GROUP = "E11 demand served under Slurm"
SMALL, LARGE, TRACES = 220, 10, 3
"""Cases of each sort."""
QUICK = (16, 2, 1)
LOADS = (0.6, 0.9, 1.2)
"""Demand of the trace cases over what the GPUs hold."""
EXACT_GOAL, BOUND_GOAL = 0.9, 0.85
SLACK_S = 180.0
"""What a job of the highest priority may wait beside the jobs that ran before it: two of the controller's pauses and a
change."""
HOW = {
    STATIC: "fixed layouts, no controller",
    DYNAMIC: "dynamic nodes",
    BOARD: "slot boards",
}


class Outcome(msgspec.Struct, frozen=True):
    """The result of one case."""

    case: Case
    served: float
    best: float
    """The optimum, or a bound on it."""
    waits: tuple[float, ...]
    """Seconds of each task until its start, or until the end of the case."""
    changes: int
    drained: float
    starved: int
    """Jobs of the highest priority that waited though the jobs before them had ended."""


def run(report: Report, quick: bool) -> None:
    """Run the experiment for each kind of node that the controller has."""
    draws = QUICK if quick else (SMALL, LARGE, TRACES)
    few = [(case, best) for case in map(small, range(draws[0])) if (best := optimum(case)) is not None]
    many = [(case, bound(case)) for case in map(large, range(draws[1]))]
    held_out = [(case, bound(case)) for seed in range(draws[2]) for case in [trace(seed, LOADS[seed % len(LOADS)])]]
    inputs = digest(msgspec.json.encode([case for case, _ in (*few, *many, *held_out)]))
    report(
        Figure(
            GROUP,
            f"input: {len(few)} small, {len(many)} large, {len(held_out)} of the trace",
            f"sha256 {inputs}",
            "replayed",
        )
    )
    report(Figure(GROUP, "command and day", f"`benchmarks/run.py --only policy`, {date.today()}", "replayed"))
    for kind in KINDS:
        _array(report, kind)
        _exact(report, kind, few)
        for name, cases in (("large", many), ("held-out trace", held_out)):
            if cases:
                _bounded(report, f"{HOW[kind]}: {len(cases)} {name} cases", kind, cases, name)


def played(case: Case, kind: str, best: float) -> Outcome:
    """Run a case to its end."""
    simulation = Simulation(case, kind)
    simulation.run()
    waits = {job: simulation.starts.get(job, case.horizon_s) - at for job, at in simulation.submitted.items()}
    return Outcome(
        case,
        simulation.served,
        best,
        tuple(waits.values()),
        simulation.changes,
        simulation.drained,
        len(_starved(simulation, waits)),
    )


def _array(report: Report, kind: str) -> None:
    """Count the tasks of the specification's array that run after a minute: 16 halves on 8 idle whole GPUs."""
    whole = (("7g.40gb", 0),)
    job = CaseJob(0.0, "3g.20gb", 3600.0, tasks=16, limit_s=3600)
    simulation = Simulation(Case("array", ((whole,) * 8,), (job,), 120.0), kind)
    simulation.run()
    started = sum(at <= 60.0 for at in simulation.starts.values())
    goal, verdict = ("", "-") if kind == STATIC else ("16", at_least(started, 16))
    name = f"{HOW[kind]}: an array of 16 halves on 8 idle whole GPUs, tasks that run after 60 s"
    report(Figure(GROUP, name, f"{started} of 16", "replayed", goal, verdict, f"changes: {simulation.changes}"))


def _exact(report: Report, kind: str, cases: Sequence[tuple[Case, float]]) -> None:
    found = [played(case, kind, best) for case, best in cases]
    ratios = sorted(each.served / each.best for each in found)
    mean = sum(ratios) / len(ratios)
    extent = f"{ratios[0]:.2f}-{ratios[-1]:.2f}, tenth {ratios[len(ratios) // 10]:.2f}, n={len(ratios)}"
    name = f"{HOW[kind]}: slice-hours served over the exact optimum, small cases, mean"
    report(Figure(GROUP, name, f"{mean:.3f}", "replayed", *_goal(kind, mean, EXACT_GOAL), extent))


def _bounded(report: Report, head: str, kind: str, cases: Sequence[tuple[Case, float]], name: str) -> None:
    found = [played(case, kind, best) for case, best in cases]
    ratio = sum(each.served for each in found) / sum(each.best for each in found)
    ratios = [each.served / each.best for each in found]
    goal, verdict = _goal(kind, ratio, BOUND_GOAL) if "trace" in name else ("", "-")
    extent = f"{min(ratios):.2f}-{max(ratios):.2f}, n={len(ratios)}"
    report(
        Figure(GROUP, f"{head}: slice-hours served over the bound", f"{ratio:.3f}", "replayed", goal, verdict, extent)
    )
    waits = sorted(wait for each in found for wait in each.waits)
    hours = sum(each.case.horizon_s for each in found) / 3600
    slice_hours = sum(7 * each.case.gpus * each.case.horizon_s for each in found) / 3600
    drained = sum(each.drained for each in found) / 3600
    starved = sum(each.starved for each in found)
    rows = {
        "wait of a task, or its age at the end, p50 and p99": _times(waits),
        "changes per hour": f"{sum(each.changes for each in found) / hours:.1f}",
        "slice-hours that waited for a drained or changing node": f"{drained:.1f} of {slice_hours:.0f}",
    }
    for text, value in rows.items():
        report(Figure(GROUP, f"{head}: {text}", value, "replayed"))
    text = f"{head}: starved tasks of the highest priority"
    goal, verdict = ("", "-") if kind == STATIC else ("0", at_most(starved, 0))
    report(Figure(GROUP, text, str(starved), "replayed", goal, verdict))


def _goal(kind: str, value: float, goal: float) -> tuple[str, str]:
    """Return a goal and whether it is reached. Fixed layouts are there for comparison, and have none."""
    return ("", "-") if kind == STATIC else (f">= {goal}", at_least(value, goal))


def _starved(simulation: Simulation, waits: dict[str, float]) -> list[str]:
    """Return the tasks of the case's highest priority that waited longer than the jobs before them ran.

    When all jobs that ran at the submission, or were of the same priority and earlier, have ended, the whole cluster
    could serve the task. Cases with a reservation are not judged.
    """
    if simulation.case.reserved:
        return []
    highest = max(job.priority for job in simulation.case.jobs)
    ends = {name: at + simulation.seconds(name) for name, at in simulation.starts.items()}
    found = []
    for name, wait in waits.items():
        at = simulation.submitted[name]
        before = [
            end
            for other, end in ends.items()
            if other != name
            and (
                simulation.starts[other] <= at
                or (simulation.priority(other) == highest and simulation.submitted[other] <= at)
            )
        ]
        if simulation.priority(name) == highest and at + wait > max([at, *before]) + SLACK_S:
            found.append(name)
    return found


def _times(waits: Sequence[float]) -> str:
    return f"{_part(waits, 0.5):.0f} s and {_part(waits, 0.99):.0f} s"


def _part(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
