"""Metrics of the controller's state, collected at each scrape."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.kubernetes.label_agent.controller.pending_pods import PendingPodCounts
from aliquot.metrics import instruments as make


class ControllerStateCollector(Collector):
    """Collector of pending pods and of the expiry of the webhooks' certificate (None if there is none)."""

    def __init__(self, waits: Callable[[], PendingPodCounts | None], expires: Callable[[], float | None]) -> None:
        self._waits, self._expires = waits, expires

    def collect(self) -> Iterator[Metric]:
        out = make.MetricFamilies()
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
