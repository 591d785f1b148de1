"""How long acts take on this node, as its own journal tells: nothing is assumed of a machine that has not done it."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.core.engine.journal_step import read_step
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.model.actions import Action, Create, CreateCompute, Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.plan import Plan

LATEST = 9
"""Of each sort of act as many of the latest count: a driver update changes times."""

LONGEST_S = 600.0
"""What took longer waited for somebody, or the clock was set meanwhile."""


def measured_durations(entries: Iterable[JournalEntry]) -> dict[str, float]:
    """Seconds that each sort of driver call took, the middle one of the latest, from intents and what came of them."""
    begun: dict[tuple[str, str, str], float] = {}
    took: dict[str, list[float]] = {}
    for entry in entries:
        key = entry.run, entry.gpu, entry.step
        if entry.kind == "intent" and entry.at:
            begun[key] = entry.at
        elif entry.kind == "done" and key in begun:
            seconds = entry.at - begun.pop(key)
            if 0 <= seconds <= LONGEST_S:
                took.setdefault(_sort(entry.step), []).append(seconds)
    return {sort: sorted(found[-LATEST:])[len(found[-LATEST:]) // 2] for sort, found in took.items()}


def _sort(text: str) -> str:
    """A step of the journal without what is different each time: ``create gi 3g.20gb``, ``destroy ci``, ``reset``."""
    step = read_step(text)
    return f"{step.verb} {step.kind} {step.name}".rstrip() if step.kind in ("gi", "ci") else text


def expected_seconds(plan: Plan, durations: dict[str, float]) -> float | None:
    """Seconds that a plan will take, its GPUs side by side; None where one of its acts was never seen here."""
    per_gpu = [[_action_seconds(action, durations) for action in each] for each in plan.actions_by_gpu.values()]
    if not per_gpu or any(seconds is None for each in per_gpu for seconds in each):
        return None
    return max(sum(seconds or 0.0 for seconds in each) for each in per_gpu)


def _action_seconds(action: Action, durations: dict[str, float]) -> float | None:
    match action:
        case Create():
            calls = [f"create gi {action.profile}", *("create ci" for _ in action.compute)]
        case Destroy():
            calls = [*("destroy ci" for _ in action.compute_instances), f"destroy gi {action.profile}"]
        case CreateCompute():
            calls = ["create ci"]
        case DestroyCompute():
            calls = ["destroy ci"]
        case SetMode():
            calls = [f"mode {action.mode}"]
        case Reset() if "reset" not in durations and any(sort.startswith("mode ") for sort in durations):
            calls = []  # this node's driver changes the mode at once
        case Reset():
            calls = ["reset"]
        case _:
            return None
    times = [durations.get(call) for call in calls]
    return None if None in times else sum(t for t in times if t is not None)
