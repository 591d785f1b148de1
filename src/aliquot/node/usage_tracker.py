"""Tracking of a node's GPU usage, sample by sample, across restarts of the tracking process.

The record is ``usage-record.json`` beside the journal, replaced whole, a few hundred bytes for each GPU or instance. It
is written after a significant change, and never only because time passed. The modification time of an empty file,
``usage.alive``, shows that the tracker lives. That file is beside the lock, where a reboot deletes it, and costs no
write to a disk. Both files may be lost at any time: the history then starts later.
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
from aliquot.core.model.vgpu_usage import VgpuUsage
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
"""Interval of the agents' samples."""
WRITE_S = 60.0
Fill = Callable[[Inventory, tuple[Usage, ...]], tuple[Usage, ...]]


def read_vgpus(connection: Connection) -> tuple[VgpuUsage, ...]:
    """Return the usage of the vGPUs that VMs run with; none if the driver fails, because nothing depends on it."""
    try:
        return connection.backend.vgpu_usage()
    except AliquotError:
        return ()


class UsageTracker:
    """The tracker of a node, whose connection may be a new one at every sample. ``persist`` False leaves writing the
    record to other processes. ``fill`` adds shares from other sources (see ``dcgm_exporter``).
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
        """Read the usage and add it to the history. ``inventory`` was read at the same moment and has the holders.
        Raises the driver's errors; then nothing is added.
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
        """Write the record if it differs from the history; unless ``immediately``, at most once a minute. If the record
        is current, mark the tracker alive. A failed write is ignored.
        """
        if not self._persist or not self.history.at:
            return
        if worth_writing(self._recorded, self.history):
            if not immediately and 0 <= self._now() - self._written < WRITE_S:
                return  # the record is outdated, so no sign of life
            recorded = round_peaks(self.history)
            if not self._record.write(recorded):
                return
            self._recorded, self._written = recorded, self._now()
        self._record.mark_alive(self.history.at)


class UsageRecord:
    """The two files of the record."""

    def __init__(self, directory: str, run_directory: str) -> None:
        self.path = os.path.join(directory, FILE)
        self._file = StateFile(
            self.path, "usage-record", UsageHistory, UsageHistory(), legacy_name=LEGACY_FILE, durable=False
        )
        self.alive_path = os.path.join(run_directory, ALIVE)

    def load(self) -> UsageHistory:
        """Return the recorded history as of the last sign of life; an empty one if there is none or it cannot
        be read.
        """
        try:
            found = self._file.load()
        except AliquotError:
            return UsageHistory()
        try:
            return msgspec.structs.replace(found, at=max(found.at, os.stat(self.alive_path).st_mtime))
        except OSError:
            return found

    def write(self, history: UsageHistory) -> bool:
        """Write the record, and report whether that succeeded. The previous sign of life is removed first, because it
        does not hold for this record.
        """
        try:
            with suppress(FileNotFoundError):
                os.unlink(self.alive_path)
            self._file.save(history)
        except (OSError, AliquotError):
            return False
        return True

    def mark_alive(self, at: float) -> None:
        """Mark the record as valid at that time. After a boot the folder may not exist yet: the first process to take
        the lock creates it, maybe weeks later.
        """
        try:
            os.makedirs(os.path.dirname(self.alive_path), mode=0o755, exist_ok=True)
            handle = os.open(self.alive_path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            with os.fdopen(handle, "wb"):
                os.utime(handle, (at, at))
        except OSError:
            return


class RecreationJournal:
    """Instances that Aliquot itself created again, from the journal."""

    def __init__(self, directory: str) -> None:
        self._journal = JournalFollower(directory)
        self._steps: list[tuple[float, Recreation]] = []

    def recreated(self, since: float) -> frozenset[Recreation]:
        """Return what was created since a time (seconds of wall time), which is never earlier than that of the previous
        call. A journal that cannot be read yields nothing.
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
    """Return what a step recreates: ``create gi 3g.20gb 4:4`` one instance, a reset or a change of mode the
    whole GPU.
    """
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
