"""How long acts take on this node, as its own journal tells: nothing is assumed of a machine that has not done it."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.core.engine.ports import Record
from aliquot.core.model.actions import Action, Create, CreateCompute, Destroy, DestroyCompute, Reset, SetMode
from aliquot.core.model.plan import Plan

LATEST = 9
"""Of each sort of act as many of the latest count: a driver update changes times."""

LONGEST_S = 600.0
"""What took longer waited for somebody, or the clock was set meanwhile."""


def pace(records: Iterable[Record]) -> dict[str, float]:
    """Seconds that each sort of driver call took, the middle one of the latest, from intents and what came of them."""
    begun: dict[tuple[str, str, str], float] = {}
    took: dict[str, list[float]] = {}
    for record in records:
        key = record.run, record.gpu, record.step
        if record.kind == "intent" and record.at:
            begun[key] = record.at
        elif record.kind == "done" and key in begun:
            seconds = record.at - begun.pop(key)
            if 0 <= seconds <= LONGEST_S:
                took.setdefault(_sort(record.step), []).append(seconds)
    return {sort: sorted(found[-LATEST:])[len(found[-LATEST:]) // 2] for sort, found in took.items()}


def _sort(step: str) -> str:
    """A step of the journal without what is different each time: ``create gi 3g.20gb``, ``destroy ci``, ``reset``."""
    match step.split():
        case ["create", "gi", profile, *_] | ["destroy", "gi", _, profile, *_]:
            return f"{step.split()[0]} gi {profile}"
        case ["create" | "destroy" as verb, "ci", *_]:
            return f"{verb} ci"
        case _:
            return step


def expected(plan: Plan, known: dict[str, float]) -> float | None:
    """Seconds that a plan will take, its GPUs side by side; None where one of its acts was never seen here."""
    lanes = [[_act(action, known) for action in lane] for lane in plan.lanes.values()]
    if not lanes or any(seconds is None for lane in lanes for seconds in lane):
        return None
    return max(sum(seconds or 0.0 for seconds in lane) for lane in lanes)


def _act(action: Action, known: dict[str, float]) -> float | None:
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
        case Reset() if "reset" not in known and any(sort.startswith("mode ") for sort in known):
            calls = []  # this node's driver changes the mode at once
        case Reset():
            calls = ["reset"]
        case _:
            return None
    times = [known.get(call) for call in calls]
    return None if None in times else sum(t for t in times if t is not None)
