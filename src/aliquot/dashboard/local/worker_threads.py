"""Worker threads for an event loop: what touches a node never runs on the loop itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """A bounded number of daemon-like workers. A closed one takes no more work and does not wait for what runs."""

    def __init__(self, count: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(count, thread_name_prefix=name)

    async def run(self, job: Callable[[], T]) -> T:
        """The job's result. Raises what it raises."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, job)

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
