"""Metrics of both node agents: observations, outcomes of plans, requests, and the state of the last observation."""

from __future__ import annotations

import time
from collections.abc import Iterable

import msgspec

from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.model.usage import Usage
from aliquot.core.planner.usage_tracking import usage_of_unchanged
from aliquot.foundation.driver_calls import oldest_s
from aliquot.foundation.state_store import Unreadable
from aliquot.metrics import instruments as make
from aliquot.metrics.apply_metrics import ApplyMetrics
from aliquot.metrics.gpu_samples import GpuCollector
from aliquot.metrics.instruments import StateFileGauge
from aliquot.metrics.page import MetricsPage
from aliquot.metrics.snapshot import NodeSnapshot, SnapshotDetails, smaller_profiles


class AgentMetrics:
    """Metrics of an agent. ``page`` is served; ``changes`` counts plans and applies. ``family`` is the prefix of the
    agent's own metric names; ``states`` are the states that it can be in.
    """

    def __init__(self, node: str, family: str, states: tuple[str, ...]) -> None:
        registry = self.registry = make.registry()
        self._node, self._states = node, states
        self._state = make.gauge(f"{family}_state", registry)
        self._observations = make.counter(f"{family}_looks_total", registry)
        self._applies = make.counter(f"{family}_applies_total", registry)
        self._took = make.histogram(f"{family}_apply_seconds", registry)
        self._state_files = StateFileGauge(registry)
        self._requests = make.counter(f"{family}_api_requests_total", registry)
        make.gauge(f"{family}_driver_call_seconds", registry).labels(node).set_function(oldest_s)
        self.changes = ApplyMetrics(registry)
        self._last = NodeSnapshot(node)
        self._inventory: Inventory | None = None
        self._held = False
        self.page = MetricsPage(registry, GpuCollector(lambda: (self._last,)), lambda: self._last)

    def set_state(self, now: str) -> None:
        for state in self._states:
            self._state.labels(self._node, state).set(state == now)

    def set_unreadable(self, files: Iterable[Unreadable]) -> None:
        """Count the state files that cannot be parsed."""
        self._state_files.count(self._node, files)

    def record_apply(self, outcome: ApplyOutcome, seconds: float) -> None:
        self.record_end(outcome.status, seconds)
        self.changes.record_outcome(outcome)

    def record_end(self, outcome: str, seconds: float) -> None:
        """Count a plan that was applied or refused."""
        self._applies.labels(self._node, outcome).inc()
        self._took.observe(seconds)

    def record_request(self, verb: str, resource: str, status: int, seconds: float) -> None:
        self._requests.labels(verb, resource, str(status)).inc()

    @property
    def usage(self) -> tuple[Usage, ...]:
        """Usage of the GPUs at its last sample."""
        return self._last.details.usage

    @usage.setter
    def usage(self, usage: tuple[Usage, ...]) -> None:
        now = self._last
        hints = smaller_profiles(now.inventory, usage, time.time()) if now.inventory is not None else ()
        self._last = msgspec.structs.replace(
            now, details=msgspec.structs.replace(now.details, usage=usage, smaller=hints)
        )

    def _details(
        self, inventory: Inventory | None, at: float, blocked: tuple[str, ...], unhealthy: int | None = None
    ) -> SnapshotDetails:
        """Return the details of a new observation. Usage is sampled less often than GPUs are read, so it is kept for
        instances that did not change. Ids alone do not show that, because the driver reuses them.
        """
        usage, hints = self._last.details.usage, self._last.details.smaller
        if inventory is not None:
            usage = usage_of_unchanged(usage, self._inventory, inventory) if self._inventory is not None else ()
            known = {(u.gpu, u.instance) for u in usage}
            hints = tuple(hint for hint in hints if hint[:2] in known)
            self._inventory = inventory
        return SnapshotDetails(at, usage, blocked, unhealthy, hints)

    def _record_snapshot(self, snapshot: NodeSnapshot, plans: Iterable[Plan]) -> None:
        """Record an observation, and the plans for the desired state. A desired state that is blocked by holders counts
        once for as long as that lasts, not once for each observation.
        """
        self._observations.labels(self._node).inc()
        self._last = snapshot
        held = any(map(self.changes.is_blocked_by_holders, plans))
        if held and not self._held:
            self.changes.count_held_refusal()
        self._held = held
