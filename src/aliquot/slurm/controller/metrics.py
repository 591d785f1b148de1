"""Prometheus metrics of the Slurm controller. They contain no names of jobs or users."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import Literal, get_args

from aliquot.metrics import instruments as make
from aliquot.metrics.page import MetricsPage
from aliquot.slurm.controller.models import (
    JobState,
    SlurmDecision,
    SlurmNodeState,
    SlurmObservation,
)

_NodeStatus = Literal["idle", "busy", "changing", "shut", "failed"]
_OUTCOMES = _DONE, _FAILURE = ("done", "failed")
_OPEN = ("cut", "drained", "waits")
"""Verdicts on jobs that wait for devices that do not exist yet."""


class SlurmMetrics:
    """The observer that collects metrics; ``page`` serves them."""

    def __init__(self) -> None:
        registry = make.registry()
        self._up = make.gauge("aliquot_slurm_up", registry)
        self._last_observation = make.gauge("aliquot_slurm_last_look_timestamp_seconds", registry)
        self._jobs = make.gauge("aliquot_slurm_jobs", registry)
        self._oldest = make.gauge("aliquot_slurm_oldest_demand_timestamp_seconds", registry)
        self._nodes = make.gauge("aliquot_slurm_records", registry)
        self._free = make.gauge("aliquot_slurm_free_devices", registry)
        self._changes = make.counter("aliquot_slurm_changes_total", registry)
        self._took = make.histogram("aliquot_slurm_change_seconds", registry, make.LONG)
        self._started = make.gauge("aliquot_slurm_change_started_timestamp_seconds", registry)
        self._start = make.histogram("aliquot_slurm_start_seconds", registry, make.LONG)
        self._under_way: dict[str, float] = {}
        self._partitioned: dict[int, float] = {}
        self._lock = Lock()
        self.page = MetricsPage(registry)

    def unavailable(self) -> None:
        """Record that Slurm does not answer, and clear metrics that may be outdated."""
        self._up.set(0)
        for each in (self._jobs, self._nodes, self._free):
            each.clear()

    def on_observation(self, observation: SlurmObservation, decision: SlurmDecision) -> None:
        self._up.set(1)
        self._last_observation.set(observation.now)
        verdicts = Counter(v.state for v in decision.verdicts)
        for verdict in get_args(JobState):
            self._jobs.labels(verdict).set(verdicts[verdict])
        self._oldest.set(self._oldest_wait(observation, decision))
        states = Counter(map(self._state, observation.state.node_states))
        for state in get_args(_NodeStatus):
            self._nodes.labels(state).set(states[state])
        free: Counter[str] = Counter()
        for node_state in observation.state.node_states:
            for outcome in _OUTCOMES:
                self._changes.labels(node_state.name, outcome)  # a counter that begins at 1 shows no increase
            free.update({kind: 0 for node in (node_state.node,) if node for kind in (g.type for g in node.gres)})
            free.update(node_state.free)
        self._free.clear()
        for kind, count in sorted(free.items()):
            if kind:
                self._free.labels(kind).set(count)
        self._starts(observation, decision)

    @staticmethod
    def _oldest_wait(observation: SlurmObservation, decision: SlurmDecision) -> float:
        """Return since when the oldest job that waits for devices has been eligible; 0 if there is none."""
        waiting = {v.job for v in decision.verdicts if v.state in _OPEN}
        return min(
            (float(max(w.submitted, w.eligible)) for w in observation.queue.demands if w.job in waiting), default=0.0
        )

    def _state(self, node_state: SlurmNodeState) -> _NodeStatus:
        if node_state.name in self._under_way:
            return "changing"
        if node_state.failure:
            return "failed"
        if node_state.shut or node_state.node is None or not node_state.node.answers:
            return "shut"
        return "busy" if node_state.jobs else "idle"

    def _starts(self, observation: SlurmObservation, decision: SlurmDecision) -> None:
        """Track jobs that devices were created for, until they run. A job that disappears was canceled."""
        since = {w.job: float(max(w.submitted, w.eligible)) for w in observation.queue.demands}
        for verdict in decision.verdicts:
            if verdict.state == "cut" and verdict.job in since:
                self._partitioned.setdefault(verdict.job, since[verdict.job])
        for job in [j for j in self._partitioned if j in observation.running]:
            self._start.observe(max(0.0, observation.now - self._partitioned.pop(job)))
        self._partitioned = {job: when for job, when in self._partitioned.items() if job in since}

    def on_change_started(self, node_name: str, now: float) -> None:
        with self._lock:
            self._under_way[node_name] = now
            self._started.set(min(self._under_way.values()))

    def on_change_ended(self, node_name: str, now: float, done: bool) -> None:
        with self._lock:
            began = self._under_way.pop(node_name, now)
            self._started.set(min(self._under_way.values(), default=0.0))
        self._changes.labels(node_name, _DONE if done else _FAILURE).inc()
        self._took.observe(max(0.0, now - began))
