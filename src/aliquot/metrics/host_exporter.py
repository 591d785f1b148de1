"""The metrics of one host without an agent: read once, or every few seconds in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from aliquot.core.config.boot_record import replay
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.usage import Usage
from aliquot.errors import AliquotError
from aliquot.foundation import driver_calls, paths
from aliquot.foundation.callbacks import Report
from aliquot.foundation.state_store import found_unreadable
from aliquot.hardware.state.boot_record_file import boot_record_file
from aliquot.metrics import instruments as make
from aliquot.metrics.gpu_samples import GpuCollector
from aliquot.metrics.instruments import StateFileGauge
from aliquot.metrics.page import MetricsPage
from aliquot.metrics.snapshot import NodeSnapshot, SnapshotDetails, smaller_profiles, take_snapshot

if TYPE_CHECKING:
    from aliquot.node.connect import Connection
    from aliquot.node.usage_tracker import UsageTracker

CLOSE_S = 5.0
"""How long ``close`` waits for the thread: a driver call that hangs ends with the process."""
USAGE_SAMPLE_S = 0.2
"""How long a look measures what is busy, where the driver counts that (GPM)."""


class HostExporter:
    """``connect`` opens the node. It is open only while it is looked at: a session that stays is a client that keeps
    the GPU from being reset. ``error`` is why the last look failed, None if it did not; ``log`` gets it as a
    sentence, once until it is another, from looks that nobody waits for. ``observed`` is set when the first look ended.
    While a driver call hangs the page is that of a look that failed.
    """

    def __init__(
        self,
        node: str | None,
        name: str,
        connect: Callable[[], AbstractContextManager[Connection]],
        log: Report = lambda _: None,
    ) -> None:
        self._connect = connect
        self._log = log
        self._boot_record = boot_record_file(node)
        self._snapshot = NodeSnapshot(name)
        self._name = name
        self._watch: UsageTracker | None = None
        self._hangs_s = driver_calls.hangs_s()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.error: AliquotError | None = None
        self.observed = threading.Event()
        self._directories = paths.directories(node)
        registry = make.registry()
        self._state_files = StateFileGauge(registry)
        make.gauge("aliquot_driver_call_seconds", registry).labels(name).set_function(driver_calls.oldest_s)
        self.page = MetricsPage(registry, GpuCollector(lambda: (self._current(),)), self._current)

    def observe(self) -> None:
        """One look. Of GPUs that cannot be read nothing is told."""
        try:
            self._observe()
        finally:
            self._state_files.count(self._name, found_unreadable(*self._directories))

    def _observe(self) -> None:
        self.error = None
        try:
            with self._connect() as connection:
                inventory = connection.backend.read()
                usage = self._usage(connection, inventory)
        except AliquotError as error:
            self._failed(error)
            return
        now = time.time()
        details = SnapshotDetails(now, usage, smaller=smaller_profiles(inventory, usage, now))
        self._snapshot = take_snapshot(inventory.node, inventory, self._desired(inventory), details)
        self._name = inventory.node

    def start(self, every_s: float) -> None:
        """Looks now, and again every so many seconds, until ``close``."""
        self._thread = threading.Thread(target=self._observe_repeatedly, args=(every_s,), name="look", daemon=True)
        self._thread.start()

    def _observe_repeatedly(self, every_s: float) -> None:
        while True:
            previous = self.error
            try:
                self.observe()
            except Exception as error:  # noqa: BLE001 -- a defect of ours must not leave an old page that looks like the truth
                self._failed(AliquotError(f"internal fault: {type(error).__name__}: {error}"))
            if self.error is not None and (previous is None or previous.brief != self.error.brief):
                self._log(f"the GPUs cannot be read now: {self.error.brief}")
            self.observed.set()
            if self._stop.wait(every_s):
                return

    def hangs(self) -> bool:
        """Return whether a driver call hangs; ``error`` then says which."""
        error = driver_calls.find_hang(self._hangs_s)
        if error is not None and (self.error is None or self.error.brief != error.brief):
            self._failed(error)
        return error is not None

    def _current(self) -> NodeSnapshot:
        """Return the last look. One that was made before the driver hung would look like the truth."""
        self.hangs()
        return self._snapshot

    def _failed(self, error: AliquotError) -> None:
        self.error = error
        self._snapshot = NodeSnapshot(self._name)

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(0.0 if self.hangs() else CLOSE_S)
        if self._watch is not None:
            self._watch.save()

    def _desired(self, inventory: Inventory) -> Desired | None:
        """What was asked last of the GPUs that are here, as recorded; a record that cannot be read asks nothing."""
        try:
            desired, _ = replay(self._boot_record.load(), inventory)
        except AliquotError:
            return None
        return desired if desired.gpus else None

    def _usage(self, connection: Connection, inventory: Inventory) -> tuple[Usage, ...]:
        """What is used, and what was seen of it over time. A driver that does not say hinders nothing else."""
        from aliquot.node.usage_tracker import UsageTracker

        try:
            if self._watch is None:
                self._watch = UsageTracker(connection)
            return self._watch.sample(connection, inventory, USAGE_SAMPLE_S)
        except AliquotError:
            return ()
