"""A wait for an event that has an end."""

from __future__ import annotations

import asyncio
from contextlib import suppress


async def wait_for_event(event: asyncio.Event, seconds: float) -> None:
    """Wait until ``event`` is set, ``seconds`` at most."""
    # Not wait_for: in Python 3.11 it loses a cancellation that comes as the event does.
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
