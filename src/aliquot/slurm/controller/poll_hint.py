"""When the controller observes the cluster: after polls that show news, after a wake, and when a burst has settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Event
from time import monotonic
from typing import Protocol

from aliquot.slurm.client.models import SlurmJob

HINTS = 5
"""The number of polls between two observations while jobs wait, at most one per second."""
HINT_S = 1.0
SHARE = 10
"""A poll waits for this many times the duration of the last observation, to limit the load in a large cluster."""
IDLE_S = 30.0
"""Seconds between two observations while no job waits for GPUs."""
IDLE_HINT_S = 2.0
"""Seconds between two polls meanwhile, unless Slurm's hooks announce new jobs."""
ALERT_S = 5.0
"""For this many seconds after a wake, polls follow each other as if jobs waited.

A hook runs before its cause shows: Slurm lists a job after its submission, and a job completes after its epilog.
"""
ANNOUNCED_S = 10.0
"""A job that appears within this many seconds after a wake was announced by it."""
SETTLE_S, MOST_SETTLE_S = 1.0, 3.0
"""A burst is over if no new job came for this many seconds, and at the latest after the second number."""


Jobs = tuple[SlurmJob, ...]


class Wake(Protocol):
    def touched(self) -> bool:
        """Report whether a hook of Slurm called since the last call."""
        ...


class NoWake:
    def touched(self) -> bool:
        return False


class PollHint:
    """The jobs of the last observation and its duration, and whether Slurm's hooks announce new jobs.

    Without such hooks an idle controller polls, too. If a job appears that no hook announced, the hooks are taken for
    absent.
    """

    def __init__(self) -> None:
        self.observation_s = 0.0
        self.idle = False
        self._pending: frozenset[int] | None = None
        self._running: frozenset[int] | None = None
        self._announced = False
        self._woken_at = float("-inf")

    def observe(self, jobs: Iterable[SlurmJob], now: float = 0.0) -> None:
        """Record the pending jobs of an observation. ``now`` is a monotonic time."""
        pending = frozenset(job.id for job in jobs if job.pending)
        if self._pending is not None and pending - self._pending:
            self._announced = now - self._woken_at <= ANNOUNCED_S
        self._pending = pending

    def set_running(self, running: frozenset[int], waits: bool) -> None:
        """Record the jobs that have resources. ``waits`` means that others wait for GPUs that these may give back."""
        self._running = running if waits else None

    def wake(self, now: float) -> None:
        """Record that a hook of Slurm called."""
        self._woken_at = now

    def until_observation(self, seconds: float) -> float:
        """Return the seconds until the next observation, given those of the settings."""
        return max(seconds, IDLE_S) if self.idle else seconds

    def pause(self, seconds: float, now: float = float("inf")) -> float:
        """Return the seconds until the next poll, given the seconds between two observations; infinite for none."""
        least = max(HINT_S, SHARE * self.observation_s)
        if now - self._woken_at < ALERT_S:
            return least
        if self.idle:
            return float("inf") if self._announced else max(IDLE_HINT_S, least)
        return max(seconds / HINTS, least)

    def has_news(self, jobs: tuple[SlurmJob, ...]) -> bool:
        """Report whether another observation may change the decision.

        That is so if a job that may need GPUs was submitted, or if a job started or ended while others wait for GPUs.
        """
        known = self._pending or frozenset()
        if any(j.pending and j.id not in known and (j.requested or j.features) for j in jobs):
            return True
        return self._running is not None and self._running != {job.id for job in jobs if not job.pending}

    def wait(
        self, stop: Event, seconds: float, ended: Callable[[], bool], poll: Callable[[], Jobs] | None, wake: Wake
    ) -> None:
        """Wait until the next observation, or less if ``stop`` is set, ``ended`` is true or ``poll`` shows news."""
        polled = monotonic()
        deadline = polled + (self.until_observation(seconds) if poll else seconds)
        while not stop.wait(min(0.1, max(0.0, deadline - monotonic()))) and (now := monotonic()) < deadline:
            if ended():
                return
            if poll is None:
                continue
            if wake.touched():
                self.wake(now)
            if polled + self.pause(seconds, now) <= now < deadline - HINT_S / 2:
                if self.has_news(poll()):
                    return
                polled = monotonic()


class Burst:
    """New jobs that came one soon after another: a decision for the first ones only would be made in vain."""

    def __init__(self) -> None:
        self._known: frozenset[int] | None = None
        self._first: float | None = None
        self._last = 0.0

    def observe(self, jobs: Iterable[SlurmJob], now: float) -> None:
        """Record the pending jobs at a time. Of those that are there at first, the old ones are not part of a burst."""
        waiting = {job.id: job for job in jobs if job.pending and (job.requested or job.features)}
        old = self._known
        if old is None:
            old = frozenset(j.id for j in waiting.values() if now - j.submitted >= MOST_SETTLE_S)
        self._known = frozenset(waiting)
        if self._known - old:
            self._first = now if self._first is None else self._first
            self._last = now

    def pause(self, now: float) -> float:
        """Return for how many seconds a decision should wait; then the burst is over."""
        if self._first is None:
            return 0.0
        left = min(self._last + SETTLE_S, self._first + MOST_SETTLE_S) - now
        if left <= 0:
            self._first = None
        return max(0.0, min(left, SETTLE_S))
