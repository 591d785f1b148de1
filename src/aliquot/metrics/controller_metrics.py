"""What the cluster's controller counts."""

from __future__ import annotations

from aliquot.metrics import instruments as make
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
