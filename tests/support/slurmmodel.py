"""A model of slurmctld's scheduler in virtual time: the main pass by priority, and backfill (select/cons_tres).

``tests/laws/oracle/test_slurm_starts.py`` replays queues in it that were recorded on real clusters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

RESOLUTION_S = 60
"""Slurm plans starts in steps of a minute (bf_resolution)."""
WINDOW_S = 86_400
"""Slurm plans no start later than that (bf_window)."""
TESTED, TASKS = 500, 20
"""Jobs that one backfill pass tests, and tasks of an array for which it reserves nodes."""

ABSENT = "ReqNodeNotAvail"
"""The reason of a job whose nodes are drained, away, reserved, or have never had its devices."""


class ModelJob(msgspec.Struct, frozen=True):
    """A job, or one task of an array, that requests ``count`` devices of a type on each of ``nodes`` nodes."""

    id: str
    kind: str
    count: int = 1
    nodes: int = 1
    limit_s: int = 600
    """Its time limit, by which Slurm plans; when the job ends is up to the caller."""
    priority: int = 100
    order: int = 0
    """Its place among jobs of equal priority."""
    partition: str = "all"
    array: str = ""


@dataclass
class ModelNode:
    """A node of Slurm. ``open`` is False while it is drained or away."""

    counts: Mapping[str, int]
    partitions: Sequence[str] = ("all",)
    open: bool = True


class Started(msgspec.Struct, frozen=True):
    """A running job."""

    job: ModelJob
    nodes: tuple[str, ...]
    at: float

    @property
    def planned_end(self) -> float:
        return self.at + self.job.limit_s


class Booking(msgspec.Struct, frozen=True):
    """A time for which nodes are reserved: by an administrator, or by backfill for a job."""

    nodes: frozenset[str]
    start: float
    end: float


@dataclass
class SlurmModel:
    """Nodes, jobs and reservations. ``settle`` runs the scheduler until it starts nothing more."""

    nodes: dict[str, ModelNode]
    pending: dict[str, ModelJob] = field(default_factory=dict)
    running: dict[str, Started] = field(default_factory=dict)
    reservations: list[Booking] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    """Why a job is pending, in Slurm's words."""

    def submit(self, jobs: Iterable[ModelJob]) -> None:
        self.pending.update((job.id, job) for job in jobs)

    def end(self, job: str) -> None:
        """Remove a job, pending or running."""
        self.pending.pop(job, None)
        self.running.pop(job, None)

    def settle(self, now: float) -> list[Started]:
        """Start what Slurm would start at a moment. Returns the jobs in the order of their starts."""
        out: list[Started] = []
        while started := [*self._main(now), *self._backfill(now)]:
            out += started
        return out

    def used(self, name: str) -> Counter[str]:
        """Count the devices of a node that jobs have."""
        out: Counter[str] = Counter()
        for each in self.running.values():
            if name in each.nodes:
                out[each.job.kind] += each.job.count
        return out

    # -- the two passes

    def _queue(self) -> list[ModelJob]:
        return sorted(self.pending.values(), key=lambda job: (-job.priority, job.order))

    def _main(self, now: float) -> list[Started]:
        """Start jobs by priority. One that must wait closes its partition's nodes to those behind it.

        A job that the open nodes could not run either without other jobs and reservations closes nothing.
        """
        out = []
        failed: set[str] = set()
        closed: set[str] = set()
        for job in self._queue():
            usable = self._unreserved(job, now)
            fits = [n for n in usable if n not in closed and self._free(n, job) >= job.count]
            if len(fits) >= job.nodes and job.partition not in failed:
                out.append(self._start(job, fits, now))
                continue
            behind = "Priority" if job.partition in failed else "Resources"
            self.reasons[job.id] = behind if len(usable) >= job.nodes else ABSENT
            if self._could_ever(job) and job.partition not in failed:
                failed.add(job.partition)
                closed |= {name for name, node in self.nodes.items() if job.partition in node.partitions}
        return out

    def _backfill(self, now: float) -> list[Started]:
        """Plan each job in its order on whole nodes, and start those whose planned time is now."""
        out = []
        plans = _Plans(self, now)
        tasks: Counter[str] = Counter()
        for job in self._queue()[:TESTED]:
            if (job.array and tasks[job.array] >= TASKS) or not self._could_ever(job):
                continue
            when, names = plans.earliest(job)
            if when <= now:
                out.append(self._start(job, names, now))
                plans.add_running(out[-1])
            elif when < now + WINDOW_S:
                tasks[job.array] += 1
                plans.book(job, names, when)
        return out

    def _start(self, job: ModelJob, names: Sequence[str], now: float) -> Started:
        started = Started(job, tuple(names[: job.nodes]), now)
        del self.pending[job.id]
        self.reasons.pop(job.id, None)
        self.running[job.id] = started
        return started

    # -- nodes

    def _unreserved(self, job: ModelJob, now: float) -> list[str]:
        """Return the nodes that suit a job and have no reservation during it."""
        booked = {n for r in self.reservations if r.start < now + job.limit_s and r.end > now for n in r.nodes}
        return [name for name, node in self.nodes.items() if name not in booked and self._suits(node, job)]

    def _free(self, name: str, job: ModelJob) -> int:
        return self.nodes[name].counts.get(job.kind, 0) - self.used(name)[job.kind]

    def _could_ever(self, job: ModelJob) -> bool:
        """Report whether the job would fit on the open nodes without other jobs. Slurm plans only for such a job."""
        return sum(self._suits(node, job) for node in self.nodes.values()) >= job.nodes

    def _suits(self, node: ModelNode, job: ModelJob) -> bool:
        return node.open and job.partition in node.partitions and node.counts.get(job.kind, 0) >= job.count


class _Plans:
    """The future as a backfill pass knows it: ends of running jobs by their limits, and nodes that are booked."""

    def __init__(self, model: SlurmModel, now: float) -> None:
        self._model = model
        self._now = now
        self._ends: dict[str, list[Started]] = {name: [] for name in model.nodes}
        self._booked: dict[str, list[tuple[float, float]]] = {name: [] for name in model.nodes}
        for each in model.running.values():
            self.add_running(each)
        for booking in model.reservations:
            for name in booking.nodes:
                self._booked[name].append((booking.start, booking.end))

    def add_running(self, started: Started) -> None:
        for name in started.nodes:
            self._ends[name].append(started)
            self._ends[name].sort(key=lambda each: each.planned_end)

    def book(self, job: ModelJob, names: Sequence[str], when: float) -> None:
        """Reserve whole nodes for a job, in whole minutes."""
        start = when // RESOLUTION_S * RESOLUTION_S
        end = (when + job.limit_s + RESOLUTION_S - 1) // RESOLUTION_S * RESOLUTION_S
        for name in names:
            self._booked[name].append((start, end))

    def earliest(self, job: ModelJob) -> tuple[float, list[str]]:
        """Return the first time at which enough nodes fit, and the nodes; infinity if there is none."""
        suits = [name for name, node in self._model.nodes.items() if self._model._suits(node, job)]
        when = self._now
        while True:
            times = sorted((self._on(name, job, when), name) for name in suits)
            if len(times) < job.nodes or times[job.nodes - 1][0] == float("inf"):
                return float("inf"), []
            last = times[job.nodes - 1][0]
            if last == when:
                found = [name for name in suits if self._on(name, job, when) == when]
                return when, found[: job.nodes]
            when = last

    def _on(self, name: str, job: ModelJob, when: float) -> float:
        """Return the first time from ``when`` on at which a node fits the job."""
        free = self._model.nodes[name].counts.get(job.kind, 0)
        alike = [each for each in self._ends[name] if each.job.kind == job.kind]
        ending = [each for each in alike if each.planned_end > when]
        free -= sum(each.job.count for each in ending)
        for each in ending:
            if free >= job.count:
                break
            free += each.job.count
            when = each.planned_end
        if free < job.count:
            return float("inf")
        moved = True
        while moved:
            moved = False
            for start, end in self._booked[name]:
                if start <= when + job.limit_s and end > when:
                    when, moved = end, True
        return when


__all__ = ["Booking", "ModelJob", "ModelNode", "SlurmModel", "Started"]
