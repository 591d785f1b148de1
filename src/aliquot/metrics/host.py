"""The figures of one machine without an agent: a look now, or one every few seconds in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from aliquot.backends.wishes import recorded
from aliquot.config.record import replay
from aliquot.errors import AliquotError
from aliquot.metrics import make
from aliquot.metrics.gpus import Gpus
from aliquot.metrics.look import Look, Seen, look, smaller
from aliquot.metrics.page import Page
from aliquot.model.desired import Desired
from aliquot.model.inventory import Inventory
from aliquot.model.usage import Usage

if TYPE_CHECKING:
    from aliquot.backends.connect import Connection
    from aliquot.backends.watching import UsageWatch

OVER_S = 0.2
"""How long a look measures what is busy, where the driver counts that (GPM)."""


class Host:
    """``connect`` opens the node. It is open only while it is looked at: a session that stays is a client that keeps
    the GPU from being reset. ``trouble`` is why the last look failed, None if it did not.
    """

    def __init__(self, node: str | None, name: str, connect: Callable[[], AbstractContextManager[Connection]]) -> None:
        self._connect = connect
        self._wishes = recorded(node)
        self._seen = Look(name)
        self._name = name
        self._watch: UsageWatch | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.trouble: AliquotError | None = None
        self.page = Page(make.registry(), Gpus(lambda: (self._seen,)), lambda: self._seen)

    def look(self) -> None:
        """One look. Of GPUs that cannot be read nothing is told."""
        self.trouble = None
        try:
            with self._connect() as connection:
                inventory = connection.backend.read()
                usage = self._used(connection, inventory)
        except AliquotError as error:
            self.trouble = error
            self._seen = Look(self._name)
            return
        now = time.time()
        seen = Seen(now, usage, smaller=smaller(inventory, usage, now))
        self._seen = look(inventory.node, inventory, self._desired(inventory), seen)
        self._name = inventory.node

    def start(self, every_s: float) -> None:
        """Looks again and again, until ``close``."""

        def again() -> None:
            while not self._stop.wait(every_s):
                self.look()

        self._thread = threading.Thread(target=again, name="look", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
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
        from aliquot.backends.watching import UsageWatch

        try:
            if self._watch is None:
                self._watch = UsageWatch(connection)
            return self._watch.look(connection, inventory, OVER_S)
        except AliquotError:
            return ()
