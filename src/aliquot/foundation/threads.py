"""The real clock and real threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class SystemClock:
    """The host's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0.0))


class ThreadWorkers:
    """Threads for jobs that run in parallel; a single job runs in the caller's thread. NVML calls release the
    interpreter lock.
    """

    def run(self, jobs: Sequence[Callable[[], T]], stop: Callable[[], None] = lambda: None) -> list[T]:
        if len(jobs) < 2:
            return [job() for job in jobs]
        from concurrent.futures import ThreadPoolExecutor

        from aliquot.foundation.signals import uninterrupted

        # Ctrl-C takes effect only after the last job has ended: the rollback follows.
        with uninterrupted(stop), ThreadPoolExecutor(len(jobs), thread_name_prefix="lane") as pool:
            return [job.result() for job in [pool.submit(job) for job in jobs]]
