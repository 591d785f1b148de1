"""Prometheus metrics of the claim agent."""

from __future__ import annotations

from aliquot.core.model.inventory import Inventory
from aliquot.metrics import instruments as make
from aliquot.metrics.agent_metrics import AgentMetrics, SharedMetrics
from aliquot.metrics.snapshot import take_snapshot

WORKING, WAITING = STATES = ("working", "waiting")


class ClaimAgentMetrics(AgentMetrics):
    """Metrics that all agents share, and those of claims and ResourceSlices."""

    def __init__(self, node: str, shared: SharedMetrics | None = None) -> None:
        super().__init__(node, "aliquot_claims", STATES, shared)
        self._prepared = make.gauge("aliquot_claims_prepared", self.registry)
        self._lost = make.gauge("aliquot_claims_lost", self.registry)
        self._answers = make.counter("aliquot_claims_prepares_total", self.registry)
        self._seconds = make.histogram("aliquot_claims_prepare_seconds", self.registry)
        self._published = make.gauge("aliquot_claims_published_devices", self.registry)
        self._writes = make.counter("aliquot_claims_slice_writes_total", self.registry)
        self.set_state(WAITING)

    def record_claim(self, result: str, seconds: float) -> None:
        """Record an answer to kubelet: ``prepared`` or ``failed``."""
        self._answers.labels(self._node, result).inc()
        self._seconds.observe(seconds)

    def record_observation(self, inventory: Inventory, at: float, unhealthy: int) -> None:
        """Record the GPUs as they were read."""
        self._record_snapshot(
            take_snapshot(self._node, inventory, None, self._details(inventory, at, (), unhealthy)), ()
        )

    def record_claims(self, prepared: int, lost: int) -> None:
        """Record how many claims are prepared, and how many of those have lost a device."""
        self._prepared.labels(self._node).set(prepared)
        self._lost.labels(self._node).set(lost)

    def record_slices(self, devices: int, writes: int) -> None:
        """Record how many devices are published, and how many writes there were since the last call."""
        self._published.labels(self._node).set(devices)
        self._writes.labels(self._node).inc(writes)
