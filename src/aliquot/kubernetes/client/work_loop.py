"""When work is done: after something changed, and again where it failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aliquot.foundation.backoff import Backoff


class WorkLoop:
    """Changes that come within ``gather_s`` seconds are answered once. What failed is tried again by ``backoff``."""

    def __init__(self, gather_s: float, backoff: Backoff) -> None:
        self._gather_s, self._backoff = gather_s, backoff
        self._wake_event = asyncio.Event()

    def wake(self) -> None:
        """There may be something to do."""
        self._wake_event.set()

    def wake_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._wake_event.set)

    async def run(self, work: Callable[[], Awaitable[bool | None]]) -> None:
        """For ever. ``work`` says False where it has to be done again, None where it may not be done now."""
        failures = 0
        while True:
            await self._wake_event.wait()
            await asyncio.sleep(self._gather_s)
            self._wake_event.clear()
            done = await work()
            if done:
                failures = 0
            elif done is not None:
                failures += 1
                self.wake_in(self._backoff.pause(failures))
