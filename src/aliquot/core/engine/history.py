"""The past runs in a journal, for people: who requested what and when, what was done, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from aliquot.core.engine.journal_step import JournalStep, read_step
from aliquot.core.engine.ports import FORMAT, ApplyStatus, JournalEntry
from aliquot.core.model.stored import Stored

EndStatus = Literal[ApplyStatus, "refused"]
"""The end of a run; ``refused``: before it touched anything."""
PastOutcome = Literal[EndStatus, "cut off", "under way", "unknown"]
INTERRUPTED: Final = "cut off"
IN_PROGRESS: Final = "under way"
_COUNTED = ("destroyed", "created")
_SUMS = {
    "destroy": "destroyed",
    "create": "created",
    "mode": "MIG mode set",
    "functions": "virtual functions switched",
    "mixed-size": "mixed-size mode switched",
    "scheduler": "scheduler set",
    "passthrough": "passthrough switched",
    "reset": "reset",
}
"""The words for steps in a total, by their verb."""
_ROUNDED_S = 0.05
"""Tolerance in seconds: entries round their times, and a file's time lags by a kernel tick."""


class PastRun(msgspec.Struct, frozen=True):
    """A past run, or the present one."""

    run: str
    at: float
    """Seconds of wall time, 0 if the journal does not have it."""
    ended: float
    """Seconds of wall time, 0 if the journal does not have it."""
    by: str
    """Who requested it, "" for unknown."""
    name: str
    """The named config, or another name of the request."""
    outcome: Stored[PastOutcome]
    """Besides the statuses of an apply: ``refused`` ended before anything was touched, ``cut off`` never ended,
    ``under way`` still runs, ``unknown`` has a newer format.
    """
    gpus: tuple[str, ...] = ()
    actions: tuple[str, ...] = msgspec.field(default=(), name="acts")
    """The actions that were done."""
    undone: tuple[str, ...] = msgspec.field(default=(), name="back")
    """The actions of the rollback."""
    failure: str = msgspec.field(default="", name="why")
    totals: str = msgspec.field(default="", name="figures")
    """The totals of ``actions``: ``2 destroyed, 1 created, MIG mode set``."""
    command: tuple[str, ...] = ()
    """The command line, empty if it is not recorded."""


class _RunEnd(msgspec.Struct, frozen=True):
    """The entry that ends a run: when, and how it ended."""

    at: float
    text: Stored[ApplyStatus]


def total_text(done: Iterable[JournalEntry]) -> str:
    """Return ``2 destroyed, 1 created, MIG mode set``, counted from ``done`` entries."""
    found: dict[str, list[str]] = {word: [] for word in _COUNTED}
    for entry in done:
        found.setdefault(_SUMS.get(read_step(entry.step).verb, entry.step), []).append(entry.gpu)
    return ", ".join(_in_sum(word, gpus) for word, gpus in found.items() if gpus)


def _in_sum(word: str, gpus: Sequence[str]) -> str:
    many = len(set(gpus))
    return f"{len(gpus)} {word}" if word in _COUNTED else word if many == 1 else f"{word} on {many} GPUs"


def began_since(at: float, since: float) -> bool:
    """Report whether a run that began ``at`` may belong to the process that took the node's lock at ``since``.

    Both are wall-clock times of one host. Older journals have no time (0): then it may. If the clock was set back in
    between, the run looks older: the report then has less detail, but is not wrong.
    """
    return not at or at >= since - _ROUNDED_S


def past_runs(entries: Iterable[JournalEntry], *, running: bool = False, since: float = 0.0) -> tuple[PastRun, ...]:
    """Return the runs, newest first.

    ``running``: a process holds the node's lock, and has since ``since``. If the last run is its run, that run is
    still under way.
    """
    runs: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        runs.setdefault(entry.run, []).append(entry)
    every = list(runs.values())
    now = len(every) - 1 if running and every and began_since(every[-1][0].at, since) else None
    return tuple(_past_run(every[n], n == now) for n in reversed(range(len(every))))


def newest_runs(found: Sequence[PastRun], limit: int, max_actions: int) -> tuple[PastRun, ...]:
    """Return the first ``limit`` runs that have ended, shortened: at most ``max_actions`` actions, then how many more
    there were, and no command line.
    """
    ended = [past for past in found if past.outcome not in (IN_PROGRESS, INTERRUPTED)]
    return tuple(
        msgspec.structs.replace(
            past, actions=_few(past.actions, max_actions), undone=_few(past.undone, max_actions), command=()
        )
        for past in ended[:limit]
    )


def _few(actions: tuple[str, ...], limit: int) -> tuple[str, ...]:
    return actions if len(actions) <= limit else (*actions[: limit - 1], f"and {len(actions) - limit + 1} more")


def _past_run(entries: Sequence[JournalEntry], running: bool) -> PastRun:
    begin = next((r for r in entries if r.kind == "begin"), entries[0])
    if begin.format > FORMAT:
        reason = f"Aliquot {begin.writer} recorded it in format {begin.format}, which this version does not read"
        return PastRun(begin.run, begin.at, 0.0, begin.by, begin.text, "unknown", failure=reason)
    end = next((msgspec.convert(r, _RunEnd, from_attributes=True) for r in entries if r.kind == "end"), None)
    undo_index = next((n for n, r in enumerate(entries) if r.kind == "undo"), len(entries))
    before_undo, undo_entries = entries[:undo_index], entries[undo_index:]
    failure = next((r.text for r in entries if r.kind == "undo"), "") or next(
        (r.text for r in before_undo if r.kind == "failed"), ""
    )
    done, taken_back = _done(before_undo), _done(undo_entries)
    untouched = (
        end is not None and end.text in ("undone", "stopped") and not any(r.kind in ("intent", "done") for r in entries)
    )
    return PastRun(
        run=begin.run,
        at=begin.at,
        ended=end.at if end else 0.0,
        by=begin.by,
        name=begin.text,
        outcome="refused" if untouched else end.text if end else IN_PROGRESS if running else INTERRUPTED,
        gpus=tuple(dict.fromkeys(r.gpu for r in entries if r.gpu)),
        actions=_sentences(done),
        undone=_sentences(taken_back),
        failure=failure or ("" if end or running else _interrupted_action(entries)),
        totals=total_text(done),
        command=begin.command,
    )


def _interrupted_action(entries: Sequence[JournalEntry]) -> str:
    """Return a sentence about the action at which a run without an end was interrupted."""
    last = entries[-1]
    if last.kind == "intent":
        return f"it ended while {_words(last.step, ongoing=True)} on GPU {last.gpu}: that may have happened or not"
    return "it ended before all actions were done"


def _done(entries: Sequence[JournalEntry]) -> tuple[JournalEntry, ...]:
    """Return the entries that succeeded. Compute instances change with their GPU instance: on a GPU where GPU instances
    changed they are omitted.
    """
    done = [(r, read_step(r.step).kind) for r in entries if r.kind == "done"]
    whole = {r.gpu for r, kind in done if kind == "gi"}
    return tuple(r for r, kind in done if kind != "ci" or r.gpu not in whole)


def _sentences(done: Iterable[JournalEntry]) -> tuple[str, ...]:
    return tuple(f"GPU {r.gpu}: {_words(r.step)}" for r in done)


def _words(text: str, *, ongoing: bool = False) -> str:
    """Describe a step for people: ``created 1g.5gb at 0:1`` or, with ``ongoing``, ``creating 1g.5gb at 0:1``."""
    step = read_step(text)
    match step.verb:
        case "create" | "destroy":
            participle = step.verb.rstrip("e") + ("ing" if ongoing else "ed")
            return f"{participle} {_thing(step)}"
        case "mode":
            return f"{'setting' if ongoing else 'set'} MIG mode to {step.argument}"
        case "functions":
            count = "off" if step.argument == "0" else f"on ({step.argument})"
            return f"{'switching' if ongoing else 'switched'} virtual functions {count}"
        case "mixed-size":
            return f"{'switching' if ongoing else 'switched'} mixed-size mode {step.argument}"
        case "scheduler":
            return f"{'setting' if ongoing else 'set'} the scheduler to {step.argument}"
        case "passthrough":
            what = f"virtual function {step.function}" if step.function else "the whole GPU"
            return f"{'switching' if ongoing else 'switched'} passthrough of {what} {step.argument}"
        case "reset":
            return "resetting it" if ongoing else "reset"
        case _:
            return text  # from another version: print it as it is


def _thing(step: JournalStep) -> str:
    match step.kind:
        case "gi":
            return f"{step.name} at {step.placement}"
        case "ci":
            return f"a compute instance in instance {step.instance}"
        case "vgpu":
            return f"vGPU {step.name} on {step.function}"
    return step.argument
