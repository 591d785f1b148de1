"""Cancellation of a request in flight without leaking its socket or response."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2

SETTLE_S = 0.2
"""Seconds that a handshake gets to end. If cancelled half-way, it would leave its socket to the garbage collector."""


class Handshake:
    """Tracks whether a connection is being set up, from the trace events of the HTTP library."""

    def __init__(self) -> None:
        self.in_progress = False

    async def trace(self, event: str, _: object) -> None:
        if "connect_tcp.started" in event:
            self.in_progress = True
        elif "send_request_headers" in event:
            self.in_progress = False


def consume_exception(response_future: asyncio.Future[httpx2.Response]) -> None:
    """Fetch the exception, so that the event loop does not log the failure of an abandoned request."""
    if not response_future.cancelled():
        response_future.exception()


async def abandon(response_future: asyncio.Future[httpx2.Response], patience_s: float) -> None:
    """Cancel a request whose response is no longer needed.

    The request gets ``patience_s`` seconds, in which a handshake may end, or less if the caller is cancelled once
    more. In both cases this returns only after the request has ended.
    """
    cancelled = await _wait_despite_cancel(response_future, patience_s)
    if not response_future.cancelled() and response_future.exception() is None:
        await close_response(response_future.result())
    if cancelled:
        raise asyncio.CancelledError


async def close_response(response: httpx2.Response) -> None:
    """Close a response, even if the caller is cancelled meanwhile."""
    if response.is_closed:
        return
    close_task = asyncio.ensure_future(response.aclose())
    if await _wait_despite_cancel(close_task):
        raise asyncio.CancelledError
    close_task.result()


async def _wait_despite_cancel(work: asyncio.Future[Any], patience_s: float | None = None) -> bool:
    """Wait until ``work`` ends; cancel it after ``patience_s`` seconds (None: never).

    Returns whether the caller was cancelled meanwhile.
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
