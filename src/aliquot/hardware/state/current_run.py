"""The process that changes a node's GPUs now and its progress, from the lock and journal alone: no GPU is read."""

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
    """A change in progress."""

    process: str
    step: str = ""
    """The current step, in the words of the journal."""
    done: int = 0
    """The number of finished actions."""
    total: int = 0
    """The number of all actions; 0 if the process did not record it."""
    exclusive: bool = False
    """The change needs GPUs without open clients."""

    def __str__(self) -> str:
        progress = f", {self.done} of {self.total} actions done" if self.total else ""
        step_text = f", now: {self.step}" if self.step else ""
        return f"{self.process} is changing this node's GPUs{progress}{step_text}"


def read_current_run(node: str | None) -> CurrentRun | None:
    """Return the change that is in progress on this host (``node`` None) or a simulated node, or None."""
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
    """Return the current change of ``process``, which took the node's lock at ``since``, from the journal entries of
    the last run. An earlier run belongs to another process that was interrupted: the current one has not written to the
    journal yet.
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
    """Return how many actions of a run are finished. An action of several calls counts once: the compute instances of a
    GPU instance are created after it, and destroyed before it.
    """
    return sum(r.kind == "done" and read_step(r.step).kind != "ci" for r in entries)
