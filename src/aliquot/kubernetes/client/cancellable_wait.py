"""Waits that end: when the work is done, when the time is over, or at once when somebody wants something newer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from enum import Enum
from typing import Any

import msgspec

from aliquot.kubernetes.client.errors import ApiError, ForbiddenError


class WaitEnd(Enum):
    """How a wait ended."""

    DONE = "done"
    TIMED_OUT = "late"
    SUPERSEDED = "superseded"


class WaitLimit(msgspec.Struct, frozen=True):
    """How long to wait and how often to look, in seconds. ``superseded`` set ends the wait at once, in the middle of
    a request too.
    """

    timeout_s: float = 300.0
    poll_s: float = 1.0
    superseded: asyncio.Event | None = None

    async def run(self, work: Coroutine[Any, Any, None]) -> WaitEnd:
        """Runs ``work`` within this bound, and cancels what is not done then. Raises what ``work`` raises."""
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
    """Whether asking again may help: all but a refusal that somebody must lift first."""
    return not isinstance(error, ForbiddenError)
