"""Stopping the host's GPU services for a change, and starting them again whatever happens in between.

The services are recorded before any of them stops. The process that finds the record, after a crash or a reboot, starts
them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from aliquot.hardware.systemd.bus import ABSENT, REPLY_S, booted, open_bus, reachable
from aliquot.hardware.systemd.errors import BusError, BusLostError, NoSystemdError, ServicesError
from aliquot.hardware.systemd.jobs import Jobs, open_jobs
from aliquot.hardware.systemd.units import StoppedServices, StoppedUnit, UnitState, with_followers

STOP_S = 30.0
START_S = 120.0
_ATTEMPTS = 3
_PAUSE_S = 1.0
"""Seconds between attempts to connect to the bus again, which may be restarting."""


class Services:
    """The services of the host whose root directory is ``root``. ``stop_s`` and ``start_s`` are the limits in seconds
    for each service.
    """

    def __init__(self, root: str = "/", *, stop_s: float = STOP_S, start_s: float = START_S) -> None:
        self.root, self.stop_s, self.start_s = root, stop_s, start_s

    async def stop(
        self,
        names: Sequence[str],
        record: Callable[[StoppedServices], None],
        earlier: StoppedServices | None = None,
    ) -> StoppedServices:
        """Stop the running units among ``names``, in order, and the units that systemd would stop with them. Return
        what to start again.

        ``record`` is called with the result before anything stops. ``earlier`` is a record that was not started yet;
        the new one includes it. Units that do not exist, and a host without systemd, are ignored. Raises
        NoSystemdError; ServicesError for a unit that does not stop, after the ones before it were stopped; and the
        errors of ``record``.
        """
        before = earlier or StoppedServices()
        if not names or not reachable(self.root):
            return before
        async with open_bus(self.root, reply_s=REPLY_S) as bus:
            try:
                async with open_jobs(bus) as jobs:
                    states = await with_followers(bus, names)
                    stopped = before.merged_with(StoppedServices(tuple(s.to_start for s in states if s.to_start)))
                    if stopped.units:
                        record(stopped)
                    await self._stop_all(jobs, [state for state in states if state.to_stop])
                    return stopped
            except BusError as error:
                if error.short in ABSENT and not booted(self.root):
                    return before
                raise ServicesError(f"the host's systemd does not list or stop services: {error.brief}") from error

    async def start(self, stopped: StoppedServices) -> tuple[str, ...]:
        """Start the stopped units in reverse order, each even if another fails.

        Return notes on units that no longer exist, or had failed before and fail again. Raises NoSystemdError, and
        ServicesError with a line for each other failure, whose ``remaining`` names the units that do not run.
        """
        if not stopped.units:
            return ()
        if not reachable(self.root):
            raise NoSystemdError(
                f"the host ran systemd when these were stopped, and does not now: {', '.join(stopped.names)}"
            )
        starting = _Starting(list(reversed(stopped.units)), self.start_s)
        lost = ""
        for attempt in range(_ATTEMPTS):
            try:
                async with open_bus(self.root, reply_s=REPLY_S) as bus, open_jobs(bus) as jobs:
                    await starting.resume(jobs)
                break
            except (BusLostError, NoSystemdError) as error:
                lost = error.brief
            except BusError as error:
                lost = error.brief
                break
            if attempt < _ATTEMPTS - 1:
                await asyncio.sleep(_PAUSE_S)
        starting.give_up(lost)
        if starting.failures:
            raise _not_started(starting.failures, stopped.units)
        return tuple(starting.notes)

    async def _stop_all(self, jobs: Jobs, states: Sequence[UnitState]) -> None:
        for state in states:
            try:
                failure = await jobs.stop(state.name, self.stop_s)
            except BusError as error:
                if error.short == "NoSuchUnit":
                    continue  # it ended by itself and was forgotten
                failure = error.brief
            if failure:
                raise ServicesError(
                    f"{state.name} of the host does not stop: {failure}", next_step=f"systemctl status {state.name}"
                )


class _Starting:
    """Units that wait to be started, if necessary over several connections."""

    def __init__(self, waiting: list[StoppedUnit], seconds: float) -> None:
        self.waiting = waiting
        self.seconds = seconds
        self.failures: dict[StoppedUnit, str] = {}
        self.notes: list[str] = []

    async def resume(self, jobs: Jobs) -> None:
        while self.waiting:
            unit = self.waiting[0]
            try:
                failure = await jobs.start(unit.name, self.seconds)
            except BusLostError:
                raise
            except BusError as error:
                failure = "" if error.short == "NoSuchUnit" else error.brief
                if not failure:
                    self.notes.append(f"{unit.name} no longer exists")
            self.waiting.pop(0)
            if failure and unit.failed:
                self.notes.append(f"{unit.name}, which had failed before, did not start: {failure}")
            elif failure:
                self.failures[unit] = failure

    def give_up(self, why: str) -> None:
        self.failures |= dict.fromkeys(self.waiting, why)


def _not_started(failures: dict[StoppedUnit, str], units: Sequence[StoppedUnit]) -> ServicesError:
    count = "a service" if len(failures) == 1 else f"{len(failures)} services"
    return ServicesError(
        f"{count} of the host did not start again ({len(units)} were stopped)",
        details=tuple(f"{unit.name}: {failure}" for unit, failure in failures.items()),
        next_step=f"systemctl status {next(iter(failures)).name}",
        remaining=tuple(unit.name for unit in units if unit in failures),
    )
