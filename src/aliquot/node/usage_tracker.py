"""Watching what a node's pieces are used for: look after look, over restarts of whoever watches.

The record is ``usage-record.json`` beside the journal, replaced whole, a few hundred bytes for each piece. It is
written when something became otherwise that is worth it, and never because time passed. That the watcher lives is told
by the time of an empty file, ``usage.alive``, where the lock is: that goes with a reboot, and is no write to a disk.
Both may be lost at any time: what is told then is younger.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.engine.journal_step import read_step
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.core.planner.usage_tracking import (
    Recreation,
    UsageHistory,
    round_peaks,
    update_history,
    with_history,
    worth_writing,
)
from aliquot.errors import AliquotError
from aliquot.foundation.state_store import StateFile
from aliquot.hardware.state.journal_follower import JournalFollower

if TYPE_CHECKING:
    from aliquot.node.connect import Connection

FILE = "usage-record.json"
LEGACY_FILE = "usage.json"
ALIVE = "usage.alive"
SAMPLE_S = 45.0
"""How often agents look."""
WRITE_S = 60.0
Fill = Callable[[Inventory, tuple[Usage, ...]], tuple[Usage, ...]]


class UsageTracker:
    """One node's, whose connection may be opened anew at every look. ``persist`` False leaves the record to others.
    ``fill`` adds what others know of shares (see ``dcgm_exporter``).
    """

    def __init__(
        self,
        connection: Connection,
        *,
        persist: bool = True,
        now: Callable[[], float] = time.time,
        fill: Fill | None = None,
    ) -> None:
        self._record = UsageRecord(connection.directory, connection.run_directory)
        self._journal = RecreationJournal(connection.directory)
        self._boot = connection.journal.boot
        self._now = now
        self._persist = persist
        self._fill = fill
        self.history = self._recorded = self._record.load()
        self._written = 0.0

    def sample(self, connection: Connection, inventory: Inventory, over_s: float = 0.0) -> tuple[Usage, ...]:
        """Reads, and adds it up. ``inventory`` is a look at the same moment: it says who holds what. Raises what the
        driver's refusals mean; then nothing is added.
        """
        usage = connection.backend.usage(over_s)
        if self._fill is not None:
            usage = self._fill(inventory, usage)
        recreated = self._journal.recreated(self.history.at)
        self.history = update_history(self.history, inventory, usage, self._now(), self._boot, recreated=recreated)
        if self._persist:
            self.save(immediately=False)
        return with_history(self.history, usage)

    def save(self, *, immediately: bool = True) -> None:
        """Writes the record where it says something else than what was seen; not ``immediately``: at most once a
        minute. Where it is true, the sign of life is given. One that cannot be written is no trouble.
        """
        if not self._persist or not self.history.at:
            return
        if worth_writing(self._recorded, self.history):
            if not immediately and 0 <= self._now() - self._written < WRITE_S:
                return  # what the record says is not true now: no sign of life
            recorded = round_peaks(self.history)
            if not self._record.write(recorded):
                return
            self._recorded, self._written = recorded, self._now()
        self._record.mark_alive(self.history.at)


class UsageRecord:
    """The two files."""

    def __init__(self, directory: str, run_directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._file = StateFile(
            self.path, "usage-record", UsageHistory, UsageHistory(), legacy_name=LEGACY_FILE, durable=False
        )
        self.alive_path = os.path.join(run_directory, ALIVE)

    def load(self) -> UsageHistory:
        """What is written, as of the last sign of life; an empty one where there is none, or none that can be read."""
        try:
            found = self._file.load()
        except AliquotError:
            return UsageHistory()
        try:
            return msgspec.structs.replace(found, at=max(found.at, os.stat(self.alive_path).st_mtime))
        except OSError:
            return found

    def write(self, history: UsageHistory) -> bool:
        """Whether it could be written. The sign of life of the former one goes first: it does not speak for this."""
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.alive_path)
            self._file.save(history)
        except (OSError, AliquotError):
            return False
        return True

    def mark_alive(self, at: float) -> None:
        """What is written is what was seen at that time. After a boot nobody may have made the folder yet: the first to
        take the lock does, and that may be in weeks.
        """
        try:
            os.makedirs(os.path.dirname(self.alive_path), mode=0o755, exist_ok=True)
            handle = os.open(self.alive_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            with os.fdopen(handle, "wb"):
                os.utime(handle, (at, at))
        except OSError:
            return


class RecreationJournal:
    """What Aliquot itself made anew, from the journal."""

    def __init__(self, directory: str) -> None:
        self._journal = JournalFollower(directory)
        self._steps: list[tuple[float, Recreation]] = []

    def recreated(self, since: float) -> frozenset[Recreation]:
        """What was made since a time (seconds of wall time), which is never before that of the call before. A journal
        that cannot be read tells nothing.
        """
        try:
            news = self._journal.poll()
        except (OSError, AliquotError):
            return frozenset()
        if news is not None:
            steps = [(r.at, recreation) for r in news.entries for recreation in _recreations(r.gpu, r.step)]
            self._steps = steps if news.restarted else self._steps + steps
        self._steps = [(at, recreation) for at, recreation in self._steps if at >= since]
        return frozenset(recreation for _, recreation in self._steps)


def _recreations(pci: str, text: str) -> tuple[Recreation, ...]:
    """``create gi 3g.20gb 4:4`` makes one instance anew, a reset or a change of mode everything."""
    step = read_step(text)
    match step.verb, step.kind:
        case "create", "gi":
            return ((pci, step.placement),)
        case "create", "ci":
            return ((pci, f"#{step.instance}"),)
        case "reset" | "mode" | "functions" | "passthrough", _:
            return ((pci, ""),)
        case _:
            return ()
