"""Giving up a request that is under way, so that nothing of it is left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

SETTLE_S = 0.2
"""A handshake that is cancelled in the middle leaves its socket to the garbage collector: it is let end, this long."""


class Handshake:
    """Whether a connection is being made, as the library tells it."""

    def __init__(self) -> None:
        self.in_progress = False

    async def trace(self, event: str, _: object) -> None:
        if "connect_tcp.started" in event:
            self.in_progress = True
        elif "send_request_headers" in event:
            self.in_progress = False


def consume_exception(response_future: asyncio.Future[httpx2.Response]) -> None:
    """A failure that comes when nobody asks any more is no news for the event loop's log."""
    if not response_future.cancelled():
        response_future.exception()


async def abandon(response_future: asyncio.Future[httpx2.Response], patience_s: float) -> None:
    """Nobody waits for this answer any more. It is given up after ``patience_s``, in which a handshake may end, or as
    soon as the caller is cancelled once more; even then this ends only after what was under way has.
    """
    cancelled = await _wait_despite_cancel(response_future, patience_s)
    if not response_future.cancelled() and response_future.exception() is None:
        await close_response(response_future.result())
    if cancelled:
        raise asyncio.CancelledError


async def close_response(response: httpx2.Response) -> None:
    """Ends an answer, however often the caller is cancelled meanwhile."""
    if response.is_closed:
        return
    close_task = asyncio.ensure_future(response.aclose())
    if await _wait_despite_cancel(close_task):
        raise asyncio.CancelledError
    close_task.result()


async def _wait_despite_cancel(work: asyncio.Future[Any], patience_s: float | None = None) -> bool:
    """Waits for the end of ``work``, which is cancelled after ``patience_s`` (None: never). Whether the caller was
    cancelled meanwhile.
    """
    cancelled = False
    while not work.done():
        try:
            await asyncio.wait({work}, timeout=patience_s)
        except asyncio.CancelledError:
            cancelled = True
        if patience_s is not None:
            work.cancel()
            patience_s = None
    return cancelled
