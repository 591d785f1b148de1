"""When work is done: after something changed, and again where it failed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Rounds:
    """Changes that come within ``gather_s`` seconds are answered once. What failed is tried again after a pause that
    doubles, from the first of ``retry_s`` to the longest.
    """

    def __init__(self, gather_s: float, retry_s: tuple[float, float]) -> None:
        self._gather_s, self._retry_s = gather_s, retry_s
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There may be something to do."""
        self._woken.set()

    def wake_in(self, seconds: float) -> None:
        asyncio.get_running_loop().call_later(seconds, self._woken.set)

    async def run(self, work: Callable[[], Awaitable[bool | None]]) -> None:
        """For ever. ``work`` says False where it has to be done again, None where it may not be done now."""
        pause, longest = self._retry_s
        while True:
            await self._woken.wait()
            await asyncio.sleep(self._gather_s)
            self._woken.clear()
            done = await work()
            if done:
                pause = self._retry_s[0]
            elif done is not None:
                self.wake_in(pause)
                pause = min(pause * 2, longest)
