"""The controller's figures, for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.controller.waiting import Waits
from aliquot.metrics import make
from aliquot.metrics.page import Page


class Tally:
    """Counts. ``page`` is what is served; ``written`` is how many objects were."""

    def __init__(self) -> None:
        r = self.registry = make.registry()
        self._leading = make.gauge("aliquot_controller_leading", r)
        self._nodes = make.gauge("aliquot_controller_nodes", r)
        self._writes = make.counter("aliquot_controller_writes_total", r)
        self._failures = make.counter("aliquot_controller_failures_total", r)
        self._reviews = make.counter("aliquot_controller_reviews_total", r)
        self.written = 0
        self.page = Page(r)

    def led(self, leading: bool) -> None:
        self._leading.set(leading)

    def nodes(self, count: int) -> None:
        self._nodes.set(count)

    def wrote(self, what: str) -> None:
        self.written += 1
        self._writes.labels(what).inc()

    def failed(self, what: str) -> None:
        self._failures.labels(what).inc()

    def reviewed(self, path: str, allowed: bool) -> None:
        """An admission review was answered."""
        self._reviews.labels(path, "allowed" if allowed else "refused").inc()


class Standing(Collector):
    """What is so when it is asked: pods that wait, when the webhooks' certificate ends (None: there is none)."""

    def __init__(self, waits: Callable[[], Waits | None], expires: Callable[[], float | None]) -> None:
        self._waits, self._expires = waits, expires

    def collect(self) -> Iterator[Metric]:
        out = make.Families()
        waits = self._waits()
        if waits is not None:
            out.add("aliquot_controller_waiting_pods", ("waiting",), waits.pods - waits.hinted)
            out.add("aliquot_controller_waiting_pods", ("hinted",), waits.hinted)
            if waits.pods:
                out.add("aliquot_controller_longest_wait_start_timestamp_seconds", (), waits.since)
        ends = self._expires()
        if ends is not None:
            out.add("aliquot_controller_certificate_expiry_timestamp_seconds", (), ends)
        yield from out.all()
