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
from aliquot.foundation.state_store import found_unreadable
from aliquot.hardware.state.boot_record_file import recorded
from aliquot.metrics import instruments as make
from aliquot.metrics.gpu_samples import Gpus
from aliquot.metrics.page import Page
from aliquot.metrics.snapshot import Look, Seen, look, smaller
from aliquot.metrics.state_file_metrics import StateFileGauge

if TYPE_CHECKING:
    from aliquot.node.connect import Connection
    from aliquot.node.usage_record import UsageWatch

CLOSE_S = 5.0
"""How long ``close`` waits for the thread: a driver call that hangs ends with the process."""
OVER_S = 0.2
"""How long a look measures what is busy, where the driver counts that (GPM)."""


class Host:
    """``connect`` opens the node. It is open only while it is looked at: a session that stays is a client that keeps
    the GPU from being reset. ``trouble`` is why the last look failed, None if it did not; ``said`` gets it as a
    sentence, once until it is another, from looks that nobody waits for. ``looked`` is set when the first look ended.
    While a driver call hangs the page is that of a look that failed.
    """

    def __init__(
        self,
        node: str | None,
        name: str,
        connect: Callable[[], AbstractContextManager[Connection]],
        said: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._connect = connect
        self._said = said
        self._wishes = recorded(node)
        self._seen = Look(name)
        self._name = name
        self._watch: UsageWatch | None = None
        self._hangs_s = driver_calls.hangs_s()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.trouble: AliquotError | None = None
        self.looked = threading.Event()
        self._directories = paths.directories(node)
        registry = make.registry()
        self._state_files = StateFileGauge(registry)
        make.gauge("aliquot_driver_call_seconds", registry).labels(name).set_function(driver_calls.oldest_s)
        self.page = Page(registry, Gpus(lambda: (self._shown(),)), self._shown)

    def look(self) -> None:
        """One look. Of GPUs that cannot be read nothing is told."""
        try:
            self._look()
        finally:
            self._state_files.count(self._name, found_unreadable(*self._directories))

    def _look(self) -> None:
        self.trouble = None
        try:
            with self._connect() as connection:
                inventory = connection.backend.read()
                usage = self._used(connection, inventory)
        except AliquotError as error:
            self._failed(error)
            return
        now = time.time()
        seen = Seen(now, usage, smaller=smaller(inventory, usage, now))
        self._seen = look(inventory.node, inventory, self._desired(inventory), seen)
        self._name = inventory.node

    def start(self, every_s: float) -> None:
        """Looks now, and again every so many seconds, until ``close``."""
        self._thread = threading.Thread(target=self._again, args=(every_s,), name="look", daemon=True)
        self._thread.start()

    def _again(self, every_s: float) -> None:
        while True:
            former = self.trouble
            try:
                self.look()
            except Exception as fault:  # noqa: BLE001 -- a defect of ours must not leave an old page that looks like the truth
                self._failed(AliquotError(f"internal fault: {type(fault).__name__}: {fault}"))
            if self.trouble is not None and (former is None or former.brief != self.trouble.brief):
                self._said(f"the GPUs cannot be read now: {self.trouble.brief}")
            self.looked.set()
            if self._stop.wait(every_s):
                return

    def hangs(self) -> bool:
        """Return whether a driver call hangs; ``trouble`` then says which."""
        error = driver_calls.hang(self._hangs_s)
        if error is not None and (self.trouble is None or self.trouble.brief != error.brief):
            self._failed(error)
        return error is not None

    def _shown(self) -> Look:
        """Return the last look. One that was made before the driver hung would look like the truth."""
        self.hangs()
        return self._seen

    def _failed(self, error: AliquotError) -> None:
        self.trouble = error
        self._seen = Look(self._name)

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(0.0 if self.hangs() else CLOSE_S)
        if self._watch is not None:
            self._watch.save()

    def _desired(self, inventory: Inventory) -> Desired | None:
        """What was asked last of the GPUs that are here, as recorded; a record that cannot be read asks nothing."""
        try:
            desired, _ = replay(self._wishes.load(), inventory)
        except AliquotError:
            return None
        return desired if desired.gpus else None

    def _used(self, connection: Connection, inventory: Inventory) -> tuple[Usage, ...]:
        """What is used, and what was seen of it over time. A driver that does not say hinders nothing else."""
        from aliquot.node.usage_record import UsageWatch

        try:
            if self._watch is None:
                self._watch = UsageWatch(connection)
            return self._watch.look(connection, inventory, OVER_S)
        except AliquotError:
            return ()
