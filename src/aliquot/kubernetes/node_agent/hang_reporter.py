"""Reporter of a hanging driver call while the agent's loop waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from aliquot.errors import AliquotError, DriverHangsError
from aliquot.foundation import driver_calls
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError

HANG_POLL_S = 1.0
BACKOFF = Backoff(first=1.0, longest=30.0, jitter=(0.8, 1.2))


class HangReporter:
    """Poller of hanging driver calls.

    ``report`` is called with the hanging call as an error at each poll, and once with None after it. It must write only
    what is not written yet. A failed report is retried with exponential back-off. ``clock`` returns seconds.
    """

    def __init__(
        self,
        report: Callable[[DriverHangsError | None], Awaitable[None]],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
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
        """Report a hang, or the end of the last one."""
        error = driver_calls.current_hang()
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
