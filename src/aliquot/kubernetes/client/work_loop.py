"""Loop that runs work after changes, and again after failures."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from aliquot.foundation.backoff import Backoff


class WorkLoop:
    """Runs work once for all changes within ``gather_s`` seconds, and retries failed work by ``backoff``."""

    def __init__(self, gather_s: float, backoff: Backoff) -> None:
        self._gather_s, self._backoff = gather_s, backoff
        self._wake_event = asyncio.Event()

    def wake(self) -> None:
        """Schedule a run of the work."""
        self._wake_event.set()

    def wake_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._wake_event.set)

    async def run(self, work: Callable[[], Awaitable[bool | None]]) -> None:
        """Run ``work`` forever. It returns False to be retried, and None if it may not run now."""
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
