"""One node within reach, seen from the page: looked at and changed. Every call is synchronous, for a worker thread.

Each opens the node and closes it again: an open NVML session is a client like any other, and a page that somebody has
left open must not be what refuses a reset.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.config.boot_record import RecordedRequest
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.step_timing import StepListener, ignore_step
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.model.usage import Usage
from aliquot.errors import BlockedError, StorageError
from aliquot.foundation import driver_calls, paths
from aliquot.foundation.callbacks import Report

if TYPE_CHECKING:
    from aliquot.core.engine.context import ApplyOutcome
    from aliquot.dashboard.local.shared_cache import SharedCache
    from aliquot.hardware.state.current_run import CurrentRun
    from aliquot.node.connect import Connection

ReadUsage = Callable[["Connection", Inventory], "tuple[Usage, ...]"]


class NodeObservation(msgspec.Struct, frozen=True):
    """A fresh look at a node: what is, and what was asked of it last. ``record_error`` says why the latter is not
    known. ``usage`` is None where nobody looked. ``begun`` is when the reading began (``time.monotonic``).
    """

    inventory: Inventory
    recorded: tuple[RecordedRequest, ...] = ()
    record_error: str = ""
    usage: tuple[Usage, ...] | None = None
    begun: float = 0.0


class NodeAccess:
    """This machine (``node`` None), or a simulated node of a state directory. With a ``cache`` it is one of many: then
    the simulator is spoken to directly, else by whatever way ALIQUOT_BACKEND says.
    """

    def __init__(self, node: str | None, state_dir: str | None = None, cache: SharedCache | None = None) -> None:
        self.name = node or os.uname().nodename
        self.simulated = node is not None
        self._node = node
        self._state_dir = state_dir or paths.state_dir()
        self._cache = cache
        self._run, self.directory = paths.directories(node, self._state_dir)

    @property
    def lock(self) -> str:
        """The path of the node's lock."""
        return os.path.join(self._run, "lock")

    @property
    def journal(self) -> str:
        from aliquot.hardware.state.journal_reader import JOURNAL

        return os.path.join(self.directory, JOURNAL)

    @contextmanager
    def opened(self, by: str = "", *, observing: bool = False) -> Iterator[Connection]:
        """The node, open. ``by`` is for whom. What containers and jobs have counts as held. Raises what ``connect``
        raises.
        """
        from aliquot.node.claims import attach_claims
        from aliquot.node.connect import connect
        from aliquot.slurm.holders import jobs

        through = "direct" if self._cache is not None else ""
        no_workloads = observing and self._cache is not None and self._cache.no_workloads(self.directory)
        try:
            with connect(self._node, state_dir=self._state_dir, backend=through) as connection:
                if not no_workloads:
                    attach_claims(connection, (jobs.source,))
                connection.by = by
                yield connection
        except OSError as error:  # what lies beside the GPUs went away while it was read: a node that was stopped
            raise BlockedError(f"{self.name} cannot be reached: {error.strerror or error}") from error

    def observe(self, *, read_usage: ReadUsage | None = None) -> NodeObservation:
        """``read_usage`` reads what the pieces are used for. Raises whatever keeps the node from being read."""
        from aliquot.hardware.state.boot_record_file import BootRecordFile

        begun = time.monotonic()
        with self.opened(observing=True) as connection:
            with self._cache.reading(connection) if self._cache is not None else nullcontext():
                inventory = connection.backend.read()
            usage = read_usage(connection, inventory) if read_usage is not None else None
        try:
            return NodeObservation(inventory, BootRecordFile(self.directory).load(), usage=usage, begun=begun)
        except StorageError as error:
            return NodeObservation(inventory, record_error=error.brief, usage=usage, begun=begun)

    def changing(self) -> CurrentRun | None:
        """The change that is under way, whoever makes it. No GPU is asked."""
        from aliquot.foundation import lock
        from aliquot.hardware.state import current_run as changing
        from aliquot.hardware.state.journal_reader import last_run

        lock_holder = lock.holder(self.lock)
        if not lock_holder:
            return None
        try:
            found = last_run(self.journal)
        except StorageError:
            found = []
        return changing.describe_run(lock_holder, found, lock.since(self.lock))

    def apply(self, plan: Plan, by: str, report: Report, watch: StepListener = ignore_step) -> ApplyOutcome:
        """``watch`` is told each step, ``report`` also a driver call that hangs. Raises what ``engine.apply`` refuses
        to start, and whatever keeps the node from being opened.
        """
        from aliquot.core.engine.apply import apply
        from aliquot.foundation.call_watchdog import CallWatchdog

        with CallWatchdog(report, driver_calls.hangs_s()), self.opened(by) as connection:
            context = connection.execution_context()
            context.on_step = watch
            return apply(plan, context, report)

    def journal_entries(self) -> list[JournalEntry]:
        """The journal. Raises StorageError."""
        from aliquot.hardware.state.journal_reader import read

        return read(self.journal)
