"""Giving up a request that is under way, so that nothing of it is left behind."""

from __future__ import annotations

import asyncio

import httpx2

SETTLE_S = 0.2
"""A handshake that is cancelled in the middle leaves its socket to the garbage collector: it is let end, this long."""


class Handshake:
    """Whether a connection is being made, as the library tells it."""

    def __init__(self) -> None:
        self.on = False

    async def trace(self, event: str, _: object) -> None:
        if "connect_tcp.started" in event:
            self.on = True
        elif "send_request_headers" in event:
            self.on = False


def heard(sending: asyncio.Future[httpx2.Response]) -> None:
    """A failure that comes when nobody asks any more is no news for the event loop's log."""
    if not sending.cancelled():
        sending.exception()


async def settled(sending: asyncio.Future[httpx2.Response], patience_s: float) -> None:
    """Nobody waits for this answer any more. It is given up after ``patience_s``, in which a handshake may end."""
    done, _ = await asyncio.wait({sending}, timeout=patience_s)
    if not done:
        sending.cancel()
        await asyncio.wait({sending})
    if not sending.cancelled() and sending.exception() is None:
        await sending.result().aclose()
