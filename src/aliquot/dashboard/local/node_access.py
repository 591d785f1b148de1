"""Access to one local or simulated node: observing and changing it. Every call is synchronous, for a worker thread.

Each call opens the node and closes it again. An open NVML session is a client of the GPU, so an open page would
otherwise block a GPU reset.
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
    """A fresh observation of a node: its inventory and the recorded last request."""

    inventory: Inventory
    recorded: tuple[RecordedRequest, ...] = ()
    record_error: str = ""
    """Why the record could not be read."""
    usage: tuple[Usage, ...] | None = None
    """None if the usage was not read."""
    begun: float = 0.0
    """When the observation began (``time.monotonic``)."""


class NodeAccess:
    """This host (``node`` None), or a simulated node of a state directory.

    With a ``cache`` it is one of many nodes and uses the simulator directly, else the backend from ALIQUOT_BACKEND.
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
        """Open the node for the user ``by``. Devices of containers and jobs count as held.

        Raises the errors of ``connect``.
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
        except OSError as error:  # files of the node vanished during the read: the node was stopped
            raise BlockedError(
                f"{self.name} cannot be reached: {error.strerror or error}",
                code="UNREACHABLE",
                next_step="aliquot sim list",
            ) from error

    def observe(self, *, read_usage: ReadUsage | None = None) -> NodeObservation:
        """Read the node, with ``read_usage`` also the usage of its instances. Raises AliquotError on failure."""
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
        """Return the change in progress by any process, without querying a GPU."""
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
        """Apply a plan. ``watch`` receives each step; ``report`` receives progress and hanging driver calls.

        Raises AliquotError if the plan is refused before it starts, or if the node cannot be opened.
        """
        from aliquot.core.engine.apply import apply
        from aliquot.foundation.call_watchdog import CallWatchdog

        with CallWatchdog(report, driver_calls.hangs_s()), self.opened(by) as connection:
            return apply(plan, connection.execution_context(on_step=watch), report)

    def journal_entries(self) -> list[JournalEntry]:
        """Return the entries of the journal. Raises StorageError."""
        from aliquot.hardware.state.journal_reader import read

        return read(self.journal)
