"""Metrics of the roles of a node agent: observations, outcomes of plans, requests, and the last observation."""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import reduce

import msgspec

from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.model.usage import Usage
from aliquot.core.model.vgpu_usage import VgpuUsage
from aliquot.core.planner.usage_tracking import usage_of_unchanged
from aliquot.foundation.driver_calls import oldest_s
from aliquot.foundation.state_store import Unreadable
from aliquot.metrics import instruments as make
from aliquot.metrics.apply_metrics import ApplyMetrics
from aliquot.metrics.gpu_samples import GpuCollector
from aliquot.metrics.instruments import StateFileGauge
from aliquot.metrics.page import MetricsPage
from aliquot.metrics.snapshot import NodeSnapshot, SnapshotDetails, merge, smaller_profiles


class SharedMetrics:
    """Metrics of an agent's process that its roles share. ``page`` is served; ``changes`` counts plans and applies."""

    def __init__(self, node: str) -> None:
        self._node = node
        self.registry = make.registry()
        self.changes = ApplyMetrics(self.registry)
        self._state_files = StateFileGauge(self.registry)
        self._roles: list[AgentMetrics] = []
        self._merged: tuple[tuple[NodeSnapshot, ...], NodeSnapshot] = ((), NodeSnapshot(node))
        self.page = MetricsPage(self.registry, GpuCollector(lambda: (self.snapshot,)), lambda: self.snapshot)

    def add(self, role: AgentMetrics) -> None:
        """Show the observations of a role. The GPUs are those of the role that was added first and has read them."""
        self._roles.append(role)

    @property
    def snapshot(self) -> NodeSnapshot:
        """The last observations of all roles as one."""
        parts = tuple(role.last for role in self._roles)
        if parts != self._merged[0]:
            self._merged = parts, reduce(merge, parts)
        return self._merged[1]

    def set_unreadable(self, files: Iterable[Unreadable]) -> None:
        """Count the state files that cannot be parsed."""
        self._state_files.count(self._node, files)


class AgentMetrics:
    """Metrics of one role of an agent. ``family`` is the prefix of the role's own metric names; ``states`` are the
    states that it can be in. ``last`` is its last observation. The roles of one process have the same ``shared``.
    """

    def __init__(self, node: str, family: str, states: tuple[str, ...], shared: SharedMetrics | None = None) -> None:
        self.shared = shared or SharedMetrics(node)
        self.page = self.shared.page
        registry = self.registry = self.shared.registry
        self._node, self._states = node, states
        self._state = make.gauge(f"{family}_state", registry)
        self._observations = make.counter(f"{family}_looks_total", registry)
        self._applies = make.counter(f"{family}_applies_total", registry)
        self._took = make.histogram(f"{family}_apply_seconds", registry)
        self._requests = make.counter(f"{family}_api_requests_total", registry)
        make.gauge(f"{family}_driver_call_seconds", registry).labels(node).set_function(oldest_s)
        self.changes = self.shared.changes
        self.last = NodeSnapshot(node)
        self._inventory: Inventory | None = None
        self._held = False
        self.shared.add(self)

    def set_state(self, now: str) -> None:
        for state in self._states:
            self._state.labels(self._node, state).set(state == now)

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
        return self.last.details.usage

    @usage.setter
    def usage(self, usage: tuple[Usage, ...]) -> None:
        now = self.last
        hints = smaller_profiles(now.inventory, usage, time.time()) if now.inventory is not None else ()
        self.last = msgspec.structs.replace(
            now, details=msgspec.structs.replace(now.details, usage=usage, smaller=hints)
        )

    def set_vgpus(self, vgpus: tuple[VgpuUsage, ...]) -> None:
        """Store a sample of the vGPUs that VMs run with."""
        now = self.last
        self.last = msgspec.structs.replace(now, details=msgspec.structs.replace(now.details, vgpus=vgpus))

    def _details(
        self, inventory: Inventory | None, at: float, blocked: tuple[str, ...], unhealthy: int | None = None
    ) -> SnapshotDetails:
        """Return the details of a new observation. Usage is sampled less often than GPUs are read, so it is kept for
        instances that did not change. Ids alone do not show that, because the driver reuses them.
        """
        usage, hints = self.last.details.usage, self.last.details.smaller
        if inventory is not None:
            usage = usage_of_unchanged(usage, self._inventory, inventory) if self._inventory is not None else ()
            known = {(u.gpu, u.instance) for u in usage}
            hints = tuple(hint for hint in hints if hint[:2] in known)
            self._inventory = inventory
        return SnapshotDetails(at, usage, blocked, unhealthy, hints, self.last.details.vgpus)

    def _record_snapshot(self, snapshot: NodeSnapshot, plans: Iterable[Plan]) -> None:
        """Record an observation, and the plans for the desired state. A desired state that is blocked by holders counts
        once for as long as that lasts, not once for each observation.
        """
        self._observations.labels(self._node).inc()
        self.last = snapshot
        held = any(map(self.changes.is_blocked_by_holders, plans))
        if held and not self._held:
            self.changes.count_held_refusal()
        self._held = held
