"""Metrics of one host without an agent: read once, or every few seconds in a thread."""

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
from aliquot.core.model.vgpu_usage import VgpuUsage
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
"""Time in seconds that ``close`` waits for the thread. A driver call that hangs ends with the process."""
USAGE_SAMPLE_S = 0.2
"""Time in seconds for measuring utilization, if the driver counts it (GPM)."""


class HostExporter:
    """Exporter for one host. ``connect`` opens the node only for the time of an observation, because a client with an
    open session prevents a reset of the GPU. ``error`` is why the last observation failed, or None. In a thread,
    ``log`` gets each new error once. ``observed`` is set after the first observation. While a driver call hangs, the
    page is that of a failed one.
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
        """Collect one sample. Unreadable GPUs are omitted."""
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
                vgpus = self._vgpus(connection)
        except AliquotError as error:
            self._failed(error)
            return
        now = time.time()
        details = SnapshotDetails(now, usage, smaller=smaller_profiles(inventory, usage, now), vgpus=vgpus)
        self._snapshot = take_snapshot(inventory.node, inventory, self._desired(inventory), details)
        self._name = inventory.node

    def start(self, every_s: float) -> None:
        """Start a thread that observes now and then every ``every_s`` seconds, until ``close``."""
        self._thread = threading.Thread(target=self._observe_repeatedly, args=(every_s,), name="look", daemon=True)
        self._thread.start()

    def _observe_repeatedly(self, every_s: float) -> None:
        while True:
            previous = self.error
            try:
                self.observe()
            except Exception as error:  # noqa: BLE001 -- a defect of ours must not leave an old page that looks current
                self._failed(AliquotError(f"internal error: {type(error).__name__}: {error}"))
            if self.error is not None and (previous is None or previous.brief != self.error.brief):
                self._log(f"cannot read the GPUs: {self.error.brief}")
            self.observed.set()
            if self._stop.wait(every_s):
                return

    def hangs(self) -> bool:
        """Report whether a driver call hangs; ``error`` then describes it."""
        error = driver_calls.find_hang(self._hangs_s)
        if error is not None and (self.error is None or self.error.brief != error.brief):
            self._failed(error)
        return error is not None

    def _current(self) -> NodeSnapshot:
        """Return the last observation, or a failed one while the driver hangs: an older one would look current."""
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
        """Return the recorded desired state of the GPUs that are present; None if the record cannot be read."""
        try:
            desired, _ = replay(self._boot_record.load(), inventory)
        except AliquotError:
            return None
        return desired if desired.gpus else None

    def _vgpus(self, connection: Connection) -> tuple[VgpuUsage, ...]:
        from aliquot.node.usage_tracker import read_vgpus

        return read_vgpus(connection)

    def _usage(self, connection: Connection, inventory: Inventory) -> tuple[Usage, ...]:
        """Return the usage and its history. An error of the driver is ignored, because other metrics do not depend on
        it.
        """
        from aliquot.node.usage_tracker import UsageTracker

        try:
            if self._watch is None:
                self._watch = UsageTracker(connection)
            return self._watch.sample(connection, inventory, USAGE_SAMPLE_S)
        except AliquotError:
            return ()
