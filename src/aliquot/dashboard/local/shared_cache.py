"""Data shared by observations of many similar nodes, so that a thousand cost little more than one."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aliquot.node.connect import Connection
    from aliquot.sim.files import FileReads

FRESH_S = 2.0
"""How long the result is cached that no container and no job runs on this host."""


class SharedCache:
    """A thread-safe cache for all nodes of a fleet."""

    def __init__(self) -> None:
        self._prefetched: FileReads = ()
        self._checked = (0.0, False)
        self._lock = threading.Lock()

    def no_workloads(self, directory: str) -> bool:
        """Report whether only processes known to the driver can hold devices of a node.

        That is true if no container and no job runs on this host, and the node has no reservations.
        """
        from aliquot.node.holders.reservations import FILE

        return self._host_idle() and not os.path.exists(os.path.join(directory, FILE))

    def _host_idle(self) -> bool:
        from aliquot.node.holders import containers as visible
        from aliquot.slurm.holders import jobs as jobs_here

        with self._lock:
            when, idle = self._checked
            if not when or time.monotonic() - when > FRESH_S:
                idle = not visible.any_running() and not jobs_here.any_job()
                self._checked = time.monotonic(), idle
            return idle

    @contextmanager
    def reading(self, connection: Connection) -> Iterator[None]:
        """Prefetch the kernel files of a simulated node that the last observation of any node read."""
        from aliquot.sim.files import PrefetchedFiles

        sim = connection.sim
        if sim is None:
            yield
            return
        files = PrefetchedFiles(sim, self._prefetched)
        connection.backend.kernel.files = files
        yield
        self._prefetched = files.reads
