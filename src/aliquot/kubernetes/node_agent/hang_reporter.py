"""Reports of a driver call that hangs while the agent's own loop waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from aliquot.errors import AliquotError, DriverHangsError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError

HANG_POLL_S = 1.0
BACKOFF = Backoff(first=1.0, longest=30.0, jitter=(0.8, 1.2))


class HangReporter:
    """``hang`` returns the call that hangs, as an error, or None. ``report`` is called with it at each poll while the
    call hangs, and once with None after it: it writes only what was not written yet. A report that is refused is
    repeated later each time. ``clock`` returns seconds.
    """

    def __init__(
        self,
        hang: Callable[[], DriverHangsError | None],
        report: Callable[[DriverHangsError | None], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._hang = hang
        self._report = report
        self._clock = clock
        self._reported = False
        self._failures = 0
        self._due = float("-inf")

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            await asyncio.sleep(HANG_POLL_S)
            await self.poll()

    async def poll(self) -> None:
        """Report what has changed since the last poll."""
        error = self._hang()
        if (error is None and not self._reported) or self._clock() < self._due:
            return
        try:
            await self._report(error)
        except AliquotError as refusal:
            self._failures += 1
            delay_s = refusal.retry_after_s if isinstance(refusal, ApiError) else None
            self._due = self._clock() + BACKOFF.pause(self._failures, delay_s or 0.0)
            log.debug("not reported: %s: %s", error.brief if error else "the driver answers again", refusal.brief)
        else:
            self._reported, self._failures = error is not None, 0
