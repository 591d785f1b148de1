"""Estimates of how long actions take on this node, from its own journal: nothing is assumed without a measurement."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.core.engine.journal_step import JournalStep, read_step, step_of
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.model.actions import Action, Create, CreateCompute, Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.plan import Plan

LATEST = 9
"""Number of latest calls of each sort that count: a driver update changes times."""

LONGEST_S = 600.0
"""Longer calls do not count: they waited for a holder, or the clock was set meanwhile."""
_CREATE_CI = JournalStep("create", kind="ci")
_DESTROY_CI = JournalStep("destroy", kind="ci")


def measured_durations(entries: Iterable[JournalEntry]) -> dict[JournalStep, float]:
    """Return the median seconds of the latest calls of each sort, from their ``intent`` and ``done`` entries."""
    begun: dict[tuple[str, str, str], float] = {}
    took: dict[JournalStep, list[float]] = {}
    for entry in entries:
        key = entry.run, entry.gpu, entry.step
        if entry.kind == "intent" and entry.at:
            begun[key] = entry.at
        elif entry.kind == "done" and key in begun:
            seconds = entry.at - begun.pop(key)
            if 0 <= seconds <= LONGEST_S:
                took.setdefault(_sort(entry.step), []).append(seconds)
    return {sort: sorted(found[-LATEST:])[len(found[-LATEST:]) // 2] for sort, found in took.items()}


def _sort(text: str) -> JournalStep:
    """Return a step without its varying parts: the placement of an instance, and its id."""
    step = read_step(text)
    return JournalStep(step.verb, kind=step.kind, name=step.name) if step.kind in ("gi", "ci") else step


def expected_seconds(plan: Plan, durations: dict[JournalStep, float]) -> float | None:
    """Return the seconds that a plan will take, its GPUs in parallel; None if one of its actions was never measured
    here.
    """
    per_gpu = [[_action_seconds(action, durations) for action in each] for each in plan.actions_by_gpu.values()]
    if not per_gpu or any(seconds is None for each in per_gpu for seconds in each):
        return None
    return max(sum(seconds or 0.0 for seconds in each) for each in per_gpu)


def _action_seconds(action: Action, durations: dict[JournalStep, float]) -> float | None:
    match action:
        case Create():
            calls = [JournalStep("create", kind="gi", name=action.profile), *(_CREATE_CI for _ in action.compute)]
        case Destroy():
            inside = [_DESTROY_CI for _ in action.compute_instances]
            calls = [*inside, JournalStep("destroy", kind="gi", name=action.profile)]
        case CreateCompute():
            calls = [_CREATE_CI]
        case DestroyCompute():
            calls = [_DESTROY_CI]
        case SetMode():
            calls = [step_of(action)]
        case Reset() if step_of(action) not in durations and any(sort.verb == "mode" for sort in durations):
            calls = []  # this node's driver changes the mode without a reset
        case Reset():
            calls = [step_of(action)]
        case _:
            return None
    times = [durations.get(call) for call in calls]
    return None if None in times else sum(t for t in times if t is not None)
