"""The controller's figures, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

CONTENT_TYPE = CONTENT_TYPE_LATEST


class Tally:
    """Counts. Names start with ``aliquot_controller_``."""

    def __init__(self) -> None:
        r = self.registry = CollectorRegistry()
        self._leading = Gauge("aliquot_controller_leading", "1 while this process holds the Lease", registry=r)
        self._nodes = Gauge("aliquot_controller_nodes", "nodes of the cluster", registry=r)
        self._writes = Counter("aliquot_controller_writes", "objects written", ["what"], registry=r)
        self._failures = Counter("aliquot_controller_failures", "writes that were refused", ["what"], registry=r)
        self.written = 0

    def led(self, leading: bool) -> None:
        self._leading.set(leading)

    def nodes(self, count: int) -> None:
        self._nodes.set(count)

    def wrote(self, what: str) -> None:
        self.written += 1
        self._writes.labels(what).inc()

    def failed(self, what: str) -> None:
        self._failures.labels(what).inc()

    def page(self) -> bytes:
        """Everything in OpenMetrics text."""
        page: bytes = generate_latest(self.registry)  # type: ignore[no-untyped-call]
        return page
