"""Worker threads for an event loop. Code that accesses a node never runs on the loop itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import get_ident
from typing import Generic, TypeVar

from aliquot.foundation import driver_calls

T = TypeVar("T")
POLL_S = 1.0
SPARE = 32
"""Threads that may block in a hanging driver call before other jobs have to wait."""


class _Job(Generic[T]):
    """A job and the identifier of its thread, 0 before it starts."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self.thread = 0

    def __call__(self) -> T:
        self.thread = get_ident()
        return self._work()


class Threads:
    """A thread pool that runs ``count`` jobs at a time.

    A job with a hanging driver call no longer counts, and its thread stays with the call.
    A closed pool accepts no more jobs and does not wait for running ones.
    """

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count + SPARE, thread_name_prefix=name)
        self._free = asyncio.Semaphore(count)
        self._hangs_s = driver_calls.hangs_s()
        self._stuck: dict[str, int] = {}

    async def run(self, work: Callable[[], T], node: str = "", *, patient: bool = False) -> T:
        """Return the job's result. Raises its errors, and DriverHangsError once one of its driver calls hangs.

        While that call hangs, every further job on the same ``node`` raises DriverHangsError too.
        A ``patient`` job waits for its own calls, because a change continues or rolls back when they return.
        """
        async with self._free:
            if (thread := self._stuck.get(node)) is not None:
                driver_calls.check(self._hangs_s, thread)
            job = _Job(work)
            begun = self._pool.submit(job)
            future = asyncio.wrap_future(begun)
            try:
                while not (await asyncio.wait((future,), timeout=min(POLL_S, self._hangs_s / 4)))[0]:
                    if not patient:
                        self._check(node, job.thread, begun)
            finally:
                begun.cancel()  # a job that has not started never will
                future.cancel()  # the result of a started job is dropped
            return future.result()

    def _check(self, node: str, thread: int, begun: Future[T]) -> None:
        error = driver_calls.find_hang(self._hangs_s, thread)
        if error is not None:
            self._stuck[node] = thread
            begun.add_done_callback(lambda _: self._stuck.pop(node, None))
            raise error

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
