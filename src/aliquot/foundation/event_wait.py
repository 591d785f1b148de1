"""Waiting for an event with a timeout."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until ``event`` is set, at most ``seconds``."""
    # Not wait_for: in Python 3.11 it loses a cancellation that arrives together with the event.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
