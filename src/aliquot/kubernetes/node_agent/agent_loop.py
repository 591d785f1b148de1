"""The rounds of an agent: one after the other, until there is nothing to do, then until something happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from aliquot.errors import AliquotError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.event_wait import wait_for_event
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError

BACKOFF = Backoff(first=0.5, longest=30.0, jitter=(0.8, 1.2))
UNREAD_S = BACKOFF.longest
"""How long to rest while something was not read yet: the watch that reads it wakes the loop."""
INTERNAL_FAULT = "internal fault: report this, with the output of: aliquot version"


class AgentLoop:
    """``error`` is why the last round was not finished, "" if it was; ``beat`` when the loop last moved, or is to move
    again (monotonic seconds), None before its first round; ``code`` the exit code of the agent. ``on_wake`` is called
    at each wake and at the stop: it ends what a round waits for, where that is no longer worth it.
    """

    def __init__(self) -> None:
        self.error = ""
        self.beat: float | None = None
        self.code = 0
        self.stopping = asyncio.Event()
        self.on_wake: Callable[[], None] = lambda: None
        self._woken = asyncio.Event()
        self._failures = 0

    def wake(self) -> None:
        """Say that something happened; what, the next round finds out."""
        self._woken.set()
        self.on_wake()

    def stop(self) -> None:
        """End after the round that is on."""
        self.stopping.set()
        self.wake()

    def part_ended(self, task: asyncio.Task[Any]) -> None:
        """A part that was to run for ever did not: better to start anew as a whole than to go on deaf."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error(INTERNAL_FAULT, exc_info=error)
            self.code = 1
            self.stop()

    async def run(
        self, cycle: Callable[[], Awaitable[float]], on_defect: Callable[[Exception], AliquotError | None]
    ) -> None:
        """Run until ``stop``. ``cycle`` is one round, and returns how long to rest after it, 0 to go on at once. What
        fails is logged and tried again, later each time. ``on_defect`` returns what is to be shown of an error that is
        none of ours, None where nothing is: it must not end the agent for all GPUs.
        """
        while not self.stopping.is_set():
            self.beat = time.monotonic()
            self._woken.clear()
            try:
                pause = await cycle()
                self._failures = 0
            except AliquotError as error:
                pause = self._back_off(error)
            except Exception as error:  # noqa: BLE001 -- a defect of ours must not leave the node paused
                log.exception(INTERNAL_FAULT)
                pause = self._back_off(on_defect(error))
            if pause and not self.stopping.is_set():
                self.beat = time.monotonic() + pause
                await wait_for_event(self._woken, pause)

    def _back_off(self, error: AliquotError | None) -> float:
        """The API server, the disk, the bus or a defect is in the way of a whole round."""
        self._failures += 1
        requested_s = error.retry_after_s if isinstance(error, ApiError) else None
        if error is not None:
            self.error = error.one_line
            log.warning("%s", self.error)
        return BACKOFF.pause(self._failures, requested_s or 0.0)
