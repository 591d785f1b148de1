"""Starting and stopping units: systemd queues a job and signals its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aliquot.hardware.systemd.bus import Bus
from aliquot.hardware.systemd.errors import BusError, BusLostError
from aliquot.hardware.systemd.names import SYSTEMD, UNIT

_POLL_S = 2.0
"""Seconds between checks of a job, in addition to waiting for its signal."""


class Jobs:
    """Runs one job after another on one connection. A job that does not end in time stays queued; the opposite job
    replaces it. Every method raises BusError if systemd refuses.
    """

    def __init__(self, bus: Bus, ended: asyncio.Queue[Any]) -> None:
        self._bus = bus
        self._ended = ended

    async def stop(self, name: str, seconds: float) -> str:
        """Stop a unit. Return why it still runs after ``seconds``; "" if it has stopped."""
        failure = await self._run("StopUnit", name, seconds)
        if failure is None and await self.active(name) in ("active", "activating", "reloading"):
            return "another program started it again at once"
        return failure or ""

    async def start(self, name: str, seconds: float) -> str:
        """Start a unit. Return why it did not start within ``seconds``; "" if it did."""
        try:
            await self._bus.call("ResetFailedUnit", "s", name)  # otherwise a start limit may refuse it
        except BusLostError:
            raise
        except BusError:
            pass
        failure = await self._run("StartUnit", name, seconds)
        if failure is None and await self.active(name) == "failed":
            return "it failed at once"
        return failure or ""

    async def active(self, name: str) -> str:
        """Return the unit's state: active, inactive, failed ...; inactive for one that systemd has forgotten."""
        try:
            (path,) = await self._bus.call("GetUnit", "s", name)
            return str(await self._bus.property(path, UNIT, "ActiveState"))
        except BusLostError:
            raise
        except BusError:
            return "inactive"

    async def _run(self, member: str, name: str, seconds: float) -> str | None:
        """Run a job. Return None if it succeeded, else the reason."""
        (job,) = await self._bus.call(member, "ss", name, "replace")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while (left := deadline - loop.time()) > 0:
            try:
                async with asyncio.timeout(min(left, _POLL_S)):
                    signal = await self._ended.get()
            except TimeoutError:
                if not await self._exists(job):
                    return None  # the signal was missed: the unit's state is the result
                continue
            _, path, _, result = signal.body
            if path == job:
                return None if result in ("done", "skipped") else f"systemd's job ended with {result!r}"
        verb = "stop" if member == "StopUnit" else "start"
        return f"it did not {verb} within {seconds:g} s"

    async def _exists(self, job: str) -> bool:
        try:
            await self._bus.property(job, f"{SYSTEMD}.Job", "State")
        except BusLostError:
            raise
        except BusError:
            return False
        return True


@asynccontextmanager
async def open_jobs(bus: Bus) -> AsyncIterator[Jobs]:
    """Listen for ended jobs from now on. Once per connection: systemd refuses a second subscription."""
    async with bus.finished_jobs() as ended:
        yield Jobs(bus, ended)
