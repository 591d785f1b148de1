"""Who changes a node's GPUs just now and how far it is, from its lock and journal alone: no GPU is asked."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from aliquot.core.engine.history import began_since
from aliquot.core.engine.journal_step import read_step
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.recorded_change import change_of
from aliquot.errors import AliquotError
from aliquot.foundation import lock, paths
from aliquot.hardware.state.journal_reader import JOURNAL, last_run


class CurrentRun(msgspec.Struct, frozen=True):
    """A change under way. ``process`` is the process. ``step`` is what it does now, in the journal's words, and
    ``done`` of ``total`` acts are behind it: 0 of 0 where it did not say. ``exclusive``: it needs GPUs that nobody has
    open.
    """

    process: str
    step: str = ""
    done: int = 0
    total: int = 0
    exclusive: bool = False

    def __str__(self) -> str:
        progress = f", {self.done} of {self.total} acts done" if self.total else ""
        step_text = f", now: {self.step}" if self.step else ""
        return f"{self.process} is changing this node's GPUs{progress}{step_text}"


def read_current_run(node: str | None) -> CurrentRun | None:
    """The change that is under way on this machine (``node`` None) or a simulated node, None where there is none."""
    run, lib = paths.directories(node)
    path = os.path.join(run, "lock")
    process = lock.holder(path)
    if not process:
        return None
    try:
        found = last_run(os.path.join(lib, JOURNAL))
    except AliquotError:
        found = []
    return describe_run(process, found, lock.since(path))


def describe_run(process: str, entries: Sequence[JournalEntry], since: float) -> CurrentRun:
    """What the records of the last run say of the change that ``process`` is at, who took the node's lock at ``since``.
    A run that began before is somebody else's that was cut off: this one has not said yet what it does.
    """
    begin = next((r for r in entries if r.kind == "begin" and r.change is not None), None)
    if begin is None or entries[-1].kind == "end" or not began_since(begin.at, since):
        return CurrentRun(process)
    change = change_of(begin)
    if change is None:
        return CurrentRun(process, exclusive=True)
    intents = [r for r in entries if r.kind == "intent"]
    done = {(r.gpu, r.step) for r in entries if r.kind == "done"}
    open_now = [r for r in intents if (r.gpu, r.step) not in done]
    step = f"{open_now[-1].step} on GPU {open_now[-1].gpu}" if open_now else ""
    if any(r.kind == "undo" for r in entries):
        step = f"undoing{': ' if step else ''}{step}"
    return CurrentRun(process, step, min(_finished_actions(entries), change.actions), change.actions, change.exclusive)


def _finished_actions(entries: Sequence[JournalEntry]) -> int:
    """How many acts are behind a run. An act of several calls counts once: the compute instances of a GPU instance are
    created after it, and destroyed before it.
    """
    return sum(r.kind == "done" and read_step(r.step).kind != "ci" for r in entries)
