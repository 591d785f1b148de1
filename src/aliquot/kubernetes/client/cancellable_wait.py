"""Waits that end when the work is done, at a timeout, or as soon as a newer request supersedes them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from enum import Enum
from typing import Any

import msgspec

from aliquot.kubernetes.client.errors import ApiError, ForbiddenError


class WaitEnd(Enum):
    """Outcome of a wait."""

    DONE = "done"
    TIMED_OUT = "late"
    SUPERSEDED = "superseded"


class WaitLimit(msgspec.Struct, frozen=True):
    """Limits of a wait."""

    timeout_s: float = 300.0
    poll_s: float = 1.0
    """Seconds between polls."""
    superseded: asyncio.Event | None = None
    """Ends the wait at once when set, even in the middle of a request."""

    async def run(self, work: Coroutine[Any, Any, None]) -> WaitEnd:
        """Run ``work`` within these limits, then cancel it if it has not finished. Raises what ``work`` raises."""
        task = asyncio.ensure_future(work)
        stop = asyncio.ensure_future((self.superseded or asyncio.Event()).wait())
        try:
            await asyncio.wait({task, stop}, timeout=self.timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                task.result()
                return WaitEnd.DONE
            return WaitEnd.SUPERSEDED if stop.done() else WaitEnd.TIMED_OUT
        finally:
            task.cancel()
            stop.cancel()
            await asyncio.gather(task, stop, return_exceptions=True)


def is_retryable(error: ApiError) -> bool:
    """Report whether a retry may help: False only for a permission that an administrator must grant first."""
    return not isinstance(error, ForbiddenError)
