"""The Slurm controller's figures, for Prometheus. No name of a job or a user is told."""

from __future__ import annotations

from collections import Counter
from threading import Lock

from aliquot.metrics import instruments as make
from aliquot.metrics.page import Page
from aliquot.slurm.controller.loop import Look
from aliquot.slurm.controller.models import ALONE, COVERED, CUT, DRAINED, STUCK, WAITS, Decision, Record

_VERDICTS = (COVERED, CUT, DRAINED, WAITS, ALONE, STUCK)
_IDLE, _BUSY, _CHANGING, _SHUT, _FAILED = _STATES = ("idle", "busy", "changing", "shut", "failed")
_OUTCOMES = _DONE, _FAILURE = ("done", "failed")
_OPEN = (CUT, DRAINED, WAITS)
"""Verdicts on jobs that wait for slices which are not there."""


class Tally:
    """Counts. ``page`` is what is served."""

    def __init__(self) -> None:
        r = make.registry()
        self._up = make.gauge("aliquot_slurm_up", r)
        self._look = make.gauge("aliquot_slurm_last_look_timestamp_seconds", r)
        self._jobs = make.gauge("aliquot_slurm_jobs", r)
        self._oldest = make.gauge("aliquot_slurm_oldest_demand_timestamp_seconds", r)
        self._records = make.gauge("aliquot_slurm_records", r)
        self._free = make.gauge("aliquot_slurm_free_devices", r)
        self._changes = make.counter("aliquot_slurm_changes_total", r)
        self._took = make.histogram("aliquot_slurm_change_seconds", r, make.LONG)
        self._started = make.gauge("aliquot_slurm_change_started_timestamp_seconds", r)
        self._start = make.histogram("aliquot_slurm_start_seconds", r, make.LONG)
        self._under_way: dict[str, float] = {}
        self._cut: dict[int, float] = {}
        self._lock = Lock()
        self.page = Page(r)

    def away(self) -> None:
        """Slurm does not answer: what was seen of it may be otherwise by now."""
        self._up.set(0)
        for each in (self._jobs, self._records, self._free):
            each.clear()

    def looked(self, look: Look, decision: Decision) -> None:
        self._up.set(1)
        self._look.set(look.now)
        verdicts = Counter(v.state for v in decision.verdicts)
        for state in _VERDICTS:
            self._jobs.labels(state).set(verdicts[state])
        self._oldest.set(self._waits(look, decision))
        states = Counter(map(self._state, look.world.records))
        for state in _STATES:
            self._records.labels(state).set(states[state])
        free: Counter[str] = Counter()
        for record in look.world.records:
            for outcome in _OUTCOMES:
                self._changes.labels(record.name, outcome)  # a counter that begins at 1 shows no increase
            free.update({kind: 0 for node in (record.node,) if node for kind in (g.type for g in node.gres)})
            free.update(record.free)
        self._free.clear()
        for kind, count in sorted(free.items()):
            if kind:
                self._free.labels(kind).set(count)
        self._starts(look, decision)

    @staticmethod
    def _waits(look: Look, decision: Decision) -> float:
        """Since when the oldest job has been eligible whose slices are not there; 0 where there is none."""
        waiting = {v.job for v in decision.verdicts if v.state in _OPEN}
        return min((float(max(w.submitted, w.eligible)) for w in look.queue.wants if w.job in waiting), default=0.0)

    def _state(self, record: Record) -> str:
        if record.name in self._under_way:
            return _CHANGING
        if record.failure:
            return _FAILED
        if record.shut or record.node is None or not record.node.answers:
            return _SHUT
        return _BUSY if record.jobs else _IDLE

    def _starts(self, look: Look, decision: Decision) -> None:
        """Jobs that slices were cut for, until they are seen running. One that is gone was cancelled."""
        since = {w.job: float(max(w.submitted, w.eligible)) for w in look.queue.wants}
        for verdict in decision.verdicts:
            if verdict.state == CUT and verdict.job in since:
                self._cut.setdefault(verdict.job, since[verdict.job])
        for job in [j for j in self._cut if j in look.running]:
            self._start.observe(max(0.0, look.now - self._cut.pop(job)))
        self._cut = {job: when for job, when in self._cut.items() if job in since}

    def began(self, record: str, now: float) -> None:
        with self._lock:
            self._under_way[record] = now
            self._started.set(min(self._under_way.values()))

    def ended(self, record: str, now: float, done: bool) -> None:
        with self._lock:
            began = self._under_way.pop(record, now)
            self._started.set(min(self._under_way.values(), default=0.0))
        self._changes.labels(record, _DONE if done else _FAILURE).inc()
        self._took.observe(max(0.0, now - began))
