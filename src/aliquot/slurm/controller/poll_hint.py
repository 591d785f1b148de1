"""Polls that show whether an early observation is worthwhile: one request instead of three."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.slurm.client.models import SlurmJob

HINTS = 5
"""The number of polls between two observations, at most one per second."""
HINT_S = 1.0
SHARE = 10
"""A poll waits for this many times the duration of the last observation, to limit the load in a large cluster."""


class PollHint:
    """The jobs of the last observation, and its duration."""

    def __init__(self) -> None:
        self.observation_s = 0.0
        self._pending: frozenset[int] = frozenset()
        self._running: frozenset[int] | None = None

    def observe(self, jobs: Iterable[SlurmJob]) -> None:
        """Record the pending jobs of an observation."""
        self._pending = frozenset(job.id for job in jobs if job.pending)

    def set_running(self, running: frozenset[int], waits: bool) -> None:
        """Record the jobs that have resources. ``waits`` means that others wait for GPUs that these may give back."""
        self._running = running if waits else None

    def pause(self, seconds: float) -> float:
        """Return the seconds between two polls, given the seconds between two observations."""
        return max(HINT_S, seconds / HINTS, SHARE * self.observation_s)

    def has_news(self, jobs: tuple[SlurmJob, ...]) -> bool:
        """Report whether another observation may change the decision.

        That is so if a job that may need GPUs was submitted, or if a job started or ended while others wait for GPUs.
        """
        if any(j.pending and j.id not in self._pending and (j.requested or j.features) for j in jobs):
            return True
        return self._running is not None and self._running != {job.id for job in jobs if not job.pending}
