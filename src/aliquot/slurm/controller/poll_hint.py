"""Whether it is worth to look again before it is time: one request instead of a look's three."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.slurm.client.models import SlurmJob

HINTS = 5
"""So many between two looks, and one a second at most."""
HINT_S = 1.0
SHARE = 10
"""A glance waits for so many times as long as the last look took: a large cluster is not looked at all the time."""


class PollHint:
    """What the last look saw of the jobs, and how long it took."""

    def __init__(self) -> None:
        self.observation_s = 0.0
        self._pending: frozenset[int] = frozenset()
        self._running: frozenset[int] | None = None

    def observe(self, jobs: Iterable[SlurmJob]) -> None:
        """These jobs there were."""
        self._pending = frozenset(job.id for job in jobs if job.pending)

    def set_running(self, running: frozenset[int], waits: bool) -> None:
        """``running`` have resources. ``waits``: some wait for GPUs, and one that ends may give them back."""
        self._running = running if waits else None

    def pause(self, seconds: float) -> float:
        """Seconds between two glances where ``seconds`` lie between two looks."""
        return max(HINT_S, seconds / HINTS, SHARE * self.observation_s)

    def has_news(self, jobs: tuple[SlurmJob, ...]) -> bool:
        """Whether another look may decide otherwise: a job that may want GPUs has come or,
        while some wait for them, one has begun or ended.
        """
        if any(j.pending and j.id not in self._pending and (j.requested or j.features) for j in jobs):
            return True
        return self._running is not None and self._running != {job.id for job in jobs if not job.pending}
