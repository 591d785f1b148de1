"""What is so of the controller when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.kubernetes.label_agent.controller.pending_pods import PendingPodCounts
from aliquot.metrics import instruments as make


class ControllerStateCollector(Collector):
    """What is so when it is asked: pods that wait, when the webhooks' certificate ends (None: there is none)."""

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
