"""Following a journal: its new entries, and the newest changes."""

from __future__ import annotations

import os

import msgspec

from aliquot.core.engine.history import PastRun, newest_runs, past_runs
from aliquot.core.engine.ports import JournalEntry
from aliquot.errors import AliquotError
from aliquot.hardware.state.journal_reader import JOURNAL, JournalPosition, old_journal_path, read, read_added

MAX_RUNS = 12
MAX_ACTIONS = 32


class JournalUpdate(msgspec.Struct, frozen=True):
    """Entries that were not reported before. ``restarted``: the journal was shortened, so earlier reported entries are
    void.
    """

    entries: list[JournalEntry]
    restarted: bool


class JournalFollower:
    """Reads the new entries of the journal in ``directory``."""

    def __init__(self, directory: str) -> None:
        self._path = os.path.join(directory, JOURNAL)
        self._stamp: tuple[tuple[int, int, int], ...] = ()
        self._mark = JournalPosition()

    def poll(self) -> JournalUpdate | None:
        """Return the entries since the last call; None if the files have not changed. Raises OSError, StorageError."""
        older = _stamp(old_journal_path(self._path))
        stamp = *older, *_stamp(self._path)
        if not stamp:
            raise FileNotFoundError(self._path)
        if stamp == self._stamp:
            return None
        if older:  # an older release writes it; the next change imports it
            update, self._mark = JournalUpdate(read(self._path), restarted=True), JournalPosition()
        else:
            entries, self._mark, restarted = read_added(self._path, self._mark)
            update = JournalUpdate(entries, restarted)
        self._stamp = stamp
        return update


def _stamp(path: str) -> tuple[tuple[int, int, int], ...]:
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        return ()
    return ((facts.st_ino, facts.st_size, facts.st_mtime_ns),)


class RecentRuns:
    """The newest changes of a node by any process, for users that cannot read its journal."""

    def __init__(self, directory: str) -> None:
        self._journal = JournalFollower(directory)
        self._open: list[JournalEntry] = []
        self._runs: tuple[PastRun, ...] = ()

    def runs(self) -> tuple[PastRun, ...]:
        """Return finished runs, at most a dozen. If the journal cannot be read, return the previous result."""
        try:
            update = self._journal.poll()
        except (OSError, AliquotError):
            return self._runs
        if update is not None:
            entries = update.entries if update.restarted else self._open + update.entries
            previous = () if update.restarted else self._runs
            self._runs = (*newest_runs(past_runs(entries), MAX_RUNS, MAX_ACTIONS), *previous)[:MAX_RUNS]
            last = [r for r in entries if r.run == entries[-1].run]
            self._open = [] if any(r.kind == "end" for r in last) else last
        return self._runs
