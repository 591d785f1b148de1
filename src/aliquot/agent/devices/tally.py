"""The devices agent's figures, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

from aliquot.agent.devices import tell
from aliquot.agent.devices.tell import Standing
from aliquot.integrations.kubernetes.harvester.view import Objects, View

CONTENT_TYPE = CONTENT_TYPE_LATEST
_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300, 600)
_STATES = (tell.WORKING, tell.WAITING, tell.IDLE)


class Tally:
    """Counts. Names start with ``aliquot_devices_``; all times are seconds."""

    def __init__(self, node: str) -> None:
        self.registry = CollectorRegistry()
        r = self.registry
        self._node = node
        self._state = Gauge("aliquot_devices_state", "1 for how the agent stands", ["node", "state"], registry=r)
        self._looks = Counter("aliquot_devices_looks", "looks at hardware and objects", ["node"], registry=r)
        self._applies = Counter("aliquot_devices_applies", "wishes carried out", ["node", "outcome"], registry=r)
        self._took = Histogram("aliquot_devices_apply_seconds", "how long that took", buckets=_SECONDS, registry=r)
        self._writes = Counter("aliquot_devices_writes", "changes of objects", ["verb", "kind"], registry=r)
        self._requests = Counter(
            "aliquot_devices_api_requests", "requests to the API server", ["verb", "resource", "status"], registry=r
        )
        self._vgpus = Gauge("aliquot_devices_vgpus", "vGPUs that exist", ["node", "type"], registry=r)
        self._unmet = Gauge("aliquot_devices_unmet", "objects that are not as wished", ["node", "kind"], registry=r)

    def standing(self, standing: Standing) -> None:
        for state in _STATES:
            self._state.labels(self._node, state).set(state == standing.state)

    def looked(self, view: View) -> None:
        self._looks.labels(self._node).inc()
        if view.inventory is None:
            return
        self._vgpus.clear()
        for gpu in view.inventory.gpus:
            for vgpu in gpu.vgpus:
                self._vgpus.labels(self._node, vgpu.type).inc()

    def objects(self, objects: Objects) -> None:
        """Counts what is not ready."""
        counts = {
            "SRIOVGPUDevice": [item.status.conditions for item in objects.gpus.values()],
            "VGPUDevice": [item.status.conditions for item in objects.vgpus.values()],
            "MigConfiguration": [item.status.conditions for item in objects.migs.values()],
            "PCIDeviceClaim": [item.status.conditions for item in objects.claims.values()],
        }
        for kind, rows in counts.items():
            unmet = sum(any(c.type == tell.READY and c.status == "False" for c in row) for row in rows)
            self._unmet.labels(self._node, kind).set(unmet)

    def applied(self, outcome: str, seconds: float) -> None:
        self._applies.labels(self._node, outcome).inc()
        self._took.observe(seconds)

    def wrote(self, verb: str, kind: str) -> None:
        self._writes.labels(verb, kind).inc()

    def requested(self, verb: str, resource: str, status: int, seconds: float) -> None:
        self._requests.labels(verb, resource, str(status)).inc()

    def page(self) -> bytes:
        """Everything in OpenMetrics text."""
        page: bytes = generate_latest(self.registry)  # type: ignore[no-untyped-call]
        return page
