"""The agent's figures, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from aliquot.agent.observation import Observation
from aliquot.agent.status import Status
from aliquot.integrations.kubernetes import names

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600)


class Tally:
    """Counts. Names start with ``aliquot_agent_``; all times are seconds."""

    def __init__(self, node: str) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self._node = node
        self._state = Gauge("aliquot_agent_state", "1 for the state that the node is in", ["node", "state"], registry=r)
        self._applies = Counter("aliquot_agent_applies", "applies by how they ended", ["node", "outcome"], registry=r)
        self._took = Histogram("aliquot_agent_apply_seconds", "how long applies took", buckets=_SECONDS, registry=r)
        self._looks = Counter("aliquot_agent_looks", "observations", ["node"], registry=r)
        self._requests = Counter(
            "aliquot_agent_api_requests", "requests to the API server", ["verb", "resource", "status"], registry=r
        )
        self._gpus = Gauge("aliquot_agent_gpus", "GPUs of the node", ["node"], registry=r)
        self._instances = Gauge("aliquot_agent_instances", "GPU instances", ["node", "profile"], registry=r)
        for state in names.STATES:
            self._state.labels(node, state).set(0)

    def state(self, status: Status) -> None:
        for state in names.STATES:
            self._state.labels(self._node, state).set(state == status.state)

    def applied(self, outcome: str, seconds: float) -> None:
        self._applies.labels(self._node, outcome).inc()
        self._took.observe(seconds)

    def looked(self, o: Observation) -> None:
        self._looks.labels(self._node).inc()
        if o.inventory is None:
            return
        self._gpus.labels(self._node).set(len(o.inventory.gpus))
        self._instances.clear()
        for gpu in o.inventory.gpus:
            for instance in gpu.instances:
                self._instances.labels(self._node, instance.profile).inc()
        if o.status is not None:
            self.state(o.status)

    def requested(self, verb: str, resource: str, status: int, seconds: float) -> None:
        self._requests.labels(verb, resource, str(status)).inc()

    def page(self) -> bytes:
        """Everything in OpenMetrics text."""
        page: bytes = generate_latest(self.registry)  # type: ignore[no-untyped-call]
        return page
