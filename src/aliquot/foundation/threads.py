"""Real time and real threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(seconds, 0.0))


class ThreadWorkers:
    """One thread per lane; a single lane runs in the caller's. NVML calls leave the interpreter, so lanes overlap."""

    def run(self, jobs: Sequence[Callable[[], T]], stop: Callable[[], None] = lambda: None) -> list[T]:
        if len(jobs) < 2:
            return [job() for job in jobs]
        from concurrent.futures import ThreadPoolExecutor

        from aliquot.foundation.signals import uninterrupted

        # Nobody hears of Ctrl-C, however often it is pressed, before the last lane has ended: the way back is next.
        with uninterrupted(stop), ThreadPoolExecutor(len(jobs), thread_name_prefix="lane") as pool:
            return [job.result() for job in [pool.submit(job) for job in jobs]]
