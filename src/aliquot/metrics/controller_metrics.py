"""Metrics of the cluster's controller."""

from __future__ import annotations

from aliquot.metrics import instruments as make
from aliquot.metrics.page import MetricsPage


class ControllerMetrics:
    """Metrics of the controller. ``page`` is served; ``written`` is the number of written objects."""

    def __init__(self) -> None:
        registry = self.registry = make.registry()
        self._leading = make.gauge("aliquot_controller_leading", registry)
        self._nodes = make.gauge("aliquot_controller_nodes", registry)
        self._writes = make.counter("aliquot_controller_writes_total", registry)
        self._failures = make.counter("aliquot_controller_failures_total", registry)
        self._reviews = make.counter("aliquot_controller_reviews_total", registry)
        self._ratings = make.counter("aliquot_controller_ratings_total", registry)
        self._overwrites = make.counter("aliquot_controller_definitions_overwritten_total", registry)
        self.written = 0
        self.page = MetricsPage(registry)

    def set_leading(self, leading: bool) -> None:
        self._leading.set(leading)

    def set_nodes(self, count: int) -> None:
        self._nodes.set(count)

    def count_write(self, what: str) -> None:
        self.written += 1
        self._writes.labels(what).inc()

    def count_failure(self, what: str) -> None:
        self._failures.labels(what).inc()

    def count_overwrite(self, kind: str) -> None:
        """Count a kind whose definition another program overwrote soon after its repair."""
        self._overwrites.labels(kind).inc()

    def count_review(self, path: str, allowed: bool) -> None:
        """Count an admission review that was answered."""
        self._reviews.labels(path, "allowed" if allowed else "refused").inc()

    def count_rating(self, outcome: str) -> None:
        """Count a pod of the scheduler extender, by ``prioritizer.RatingOutcome``."""
        self._ratings.labels(outcome).inc()
