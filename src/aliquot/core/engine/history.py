"""What a journal tells of the past, for people: who asked for what and when, what was done, and how it ended. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aliquot.core.engine.journal_step import JournalStep, read_step
from aliquot.core.engine.ports import FORMAT, JournalEntry

INTERRUPTED = "cut off"
IN_PROGRESS = "under way"
UNKNOWN = "unknown"
_COUNTED = ("destroyed", "created")
_SUMS = {
    "destroyed ": "destroyed",
    "created ": "created",
    "set MIG mode": "MIG mode set",
    "switched virtual functions": "virtual functions switched",
    "switched mixed-size mode": "mixed-size mode switched",
    "switched passthrough": "passthrough switched",
    "reset": "reset",
}
"""How acts begin, and what they are called in sum."""
_ROUNDED_S = 0.05
"""Records round their times, and a file's time lags by a tick of the kernel."""


class PastRun(msgspec.Struct, frozen=True):
    """One run. ``at`` and ``ended`` are seconds of wall time, 0 where the journal does not say; ``by`` is who asked, ""
    for unknown; ``name`` is the named config or what else the wish was called. ``outcome`` is done, undone, partial,
    refused (it ended before anything was touched), ``cut off`` for one that never ended, ``under way`` for one that
    still runs, ``unknown`` for one of a newer format. ``actions`` are what was done, ``totals`` that in sum
    (``2 destroyed, 1 created, MIG mode set``), ``undone`` what of it was taken back; ``failure`` is what went wrong.
    """

    run: str
    at: float
    ended: float
    by: str
    name: str
    outcome: str
    gpus: tuple[str, ...] = ()
    actions: tuple[str, ...] = msgspec.field(default=(), name="acts")
    undone: tuple[str, ...] = msgspec.field(default=(), name="back")
    failure: str = msgspec.field(default="", name="why")
    totals: str = msgspec.field(default="", name="figures")


def total_text(actions: Iterable[str]) -> str:
    """``2 destroyed, 1 created, MIG mode set``, counted on acts in words."""
    done: dict[str, list[str]] = {word: [] for word in _COUNTED}
    for gpu, _, action in (each.partition(": ") for each in actions):
        sums = (word for start, word in _SUMS.items() if action.startswith(start))
        done.setdefault(next(sums, action), []).append(gpu)
    return ", ".join(_in_sum(word, gpus) for word, gpus in done.items() if gpus)


def _in_sum(word: str, gpus: Sequence[str]) -> str:
    many = len(set(gpus))
    return f"{len(gpus)} {word}" if word in _COUNTED else word if many == 1 else f"{word} on {many} GPUs"


def began_since(at: float, since: float) -> bool:
    """Whether a run that began ``at`` can be that of who took the node's lock at ``since``, both by the wall clock of
    one machine. Older journals do not say when (0), and then it can. A clock that is set back in between makes it look
    older: then less is told of it than could be, and nothing wrong.
    """
    return not at or at >= since - _ROUNDED_S


def past_runs(entries: Iterable[JournalEntry], *, running: bool = False, since: float = 0.0) -> tuple[PastRun, ...]:
    """The runs, the newest first. ``running`` says that somebody is at the node, and ``since`` since when: then the
    last run has no end yet, if it is theirs.
    """
    runs: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        runs.setdefault(entry.run, []).append(entry)
    every = list(runs.values())
    now = len(every) - 1 if running and every and began_since(every[-1][0].at, since) else None
    return tuple(_past_run(every[n], n == now) for n in reversed(range(len(every))))


def newest_runs(found: Sequence[PastRun], limit: int, max_actions: int) -> tuple[PastRun, ...]:
    """The first ``limit`` that have ended, to be told where there is little room: of many acts ``max_actions``, and how
    many more there were.
    """
    ended = [past for past in found if past.outcome not in (IN_PROGRESS, INTERRUPTED)]
    return tuple(
        msgspec.structs.replace(past, actions=_few(past.actions, max_actions), undone=_few(past.undone, max_actions))
        for past in ended[:limit]
    )


def _few(actions: tuple[str, ...], limit: int) -> tuple[str, ...]:
    return actions if len(actions) <= limit else (*actions[: limit - 1], f"and {len(actions) - limit + 1} more")


def _past_run(entries: Sequence[JournalEntry], running: bool) -> PastRun:
    begin = next((r for r in entries if r.kind == "begin"), entries[0])
    if begin.format > FORMAT:
        reason = f"Aliquot {begin.writer} recorded it in format {begin.format}, which this version does not read"
        return PastRun(begin.run, begin.at, 0.0, begin.by, begin.text, UNKNOWN, failure=reason)
    end = next((r for r in entries if r.kind == "end"), None)
    undo_index = next((n for n, r in enumerate(entries) if r.kind == "undo"), len(entries))
    before_undo, undo_entries = entries[:undo_index], entries[undo_index:]
    failure = next((r.text for r in entries if r.kind == "undo"), "") or next(
        (r.text for r in before_undo if r.kind == "failed"), ""
    )
    actions, taken_back = _actions(before_undo), _actions(undo_entries)
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
        actions=actions,
        undone=taken_back,
        failure=failure or ("" if end or running else _interrupted_action(entries)),
        totals=total_text(actions),
    )


def _interrupted_action(entries: Sequence[JournalEntry]) -> str:
    """The act that a run without an end was at."""
    last = entries[-1]
    if last.kind == "intent":
        return f"it ended while {_words(last.step, ongoing=True)} on GPU {last.gpu}: nobody knows whether that happened"
    return "it ended before all was done"


def _actions(entries: Sequence[JournalEntry]) -> tuple[str, ...]:
    """What succeeded. Compute instances come and go with their GPU instance, and are told only where they alone did."""
    done = [(r, read_step(r.step).kind) for r in entries if r.kind == "done"]
    whole = {r.gpu for r, kind in done if kind == "gi"}
    return tuple(f"GPU {r.gpu}: {_words(r.step)}" for r, kind in done if kind != "ci" or r.gpu not in whole)


def _words(text: str, *, ongoing: bool = False) -> str:
    """A step of the engine as people say it: ``created 1g.5gb at 0:1``, or (``ongoing``) ``creating 1g.5gb at 0:1``."""
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
        case "passthrough":
            what = f"virtual function {step.function}" if step.function else "the whole GPU"
            return f"{'switching' if ongoing else 'switched'} passthrough of {what} {step.argument}"
        case "reset":
            return "resetting it" if ongoing else "reset"
        case _:
            return text  # of a version that is newer, or older: better as it is than not at all


def _thing(step: JournalStep) -> str:
    match step.kind:
        case "gi":
            return f"{step.name} at {step.placement}"
        case "ci":
            return f"a compute instance in instance {step.instance}"
        case "vgpu":
            return f"vGPU {step.name} on {step.function}"
    return step.argument
