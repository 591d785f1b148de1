"""A wait for an event ends with the event or at its timeout."""

from __future__ import annotations

import asyncio

from aliquot.foundation.event_wait import wait_for_event


def test_a_wait_ends_with_the_event_or_its_time() -> None:
    async def play() -> None:
        event = asyncio.Event()
        async with asyncio.timeout(5):
            await wait_for_event(event, 0.01)
            waiting = asyncio.create_task(wait_for_event(event, 60.0))
            await asyncio.sleep(0.01)
            assert not waiting.done()
            event.set()
            await waiting

    asyncio.run(play())
