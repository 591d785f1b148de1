"""Main loop of an agent: runs cycles until there is nothing to do, then waits for a wake."""

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
"""Seconds to pause while something is not read yet. The watch that reads it wakes the loop."""
INTERNAL_FAULT = "internal error: report this, with the output of: aliquot version"


class AgentLoop:
    """Main loop of an agent.

    ``error`` is why the last cycle failed; empty if it did not. ``beat`` is when the loop last ran or will run again
    (monotonic seconds); None before its first cycle. ``code`` is the agent's exit code. ``on_wake`` is called at each
    wake and at the stop, to end waits of a cycle that are no longer useful.
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
        """Start the next cycle, which finds out what changed."""
        self._woken.set()
        self.on_wake()

    def stop(self) -> None:
        """Stop after the current cycle."""
        self.stopping.set()
        self.wake()

    def part_ended(self, task: asyncio.Task[Any]) -> None:
        """Stop the agent if a task that should run forever fails: a restart is better than a partly working agent."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error(INTERNAL_FAULT, exc_info=error)
            self.code = 1
            self.stop()

    async def run(
        self, cycle: Callable[[], Awaitable[float]], on_defect: Callable[[Exception], AliquotError | None]
    ) -> None:
        """Run cycles until ``stop``.

        ``cycle`` returns the seconds to pause after it, 0 to continue at once. Failures are logged and retried with
        exponential back-off. ``on_defect`` returns the error to show for an unexpected exception, None to show none:
        one defect must not end the agent for all GPUs.
        """
        while not self.stopping.is_set():
            self.beat = time.monotonic()
            self._woken.clear()
            try:
                pause = await cycle()
                self._failures = 0
            except AliquotError as error:
                pause = self._back_off(error)
            except Exception as error:  # noqa: BLE001 -- a defect of Aliquot must not leave the node paused
                log.exception(INTERNAL_FAULT)
                pause = self._back_off(on_defect(error))
            if pause and not self.stopping.is_set():
                self.beat = time.monotonic() + pause
                await wait_for_event(self._woken, pause)

    def _back_off(self, error: AliquotError | None) -> float:
        """Record and log an error that prevents a whole cycle, and return the seconds until the next one."""
        self._failures += 1
        requested_s = error.retry_after_s if isinstance(error, ApiError) else None
        if error is not None:
            self.error = error.one_line
            log.warning("%s", self.error)
        return BACKOFF.pause(self._failures, requested_s or 0.0)
