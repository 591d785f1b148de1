"""Instruments and families built from rows of the table: only names, types and labels of the table can be exported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily

from aliquot import __version__
from aliquot.metrics.metric import COUNTER, GAUGE, HISTOGRAM, INFO, Metric
from aliquot.metrics.registry import NAMES, row

if TYPE_CHECKING:
    from aliquot.foundation.state_store import Unreadable

SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Buckets of durations: from one driver call to the drain of a node."""
LONG = (1.0, 3.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0)
"""Buckets of waits for users' jobs."""


def registry() -> CollectorRegistry:
    """Return the registry of a page, with the metrics of every process: version, processor time and memory."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # one series more per counter, which no query uses
    made = CollectorRegistry()
    version = _row("aliquot_build_info", INFO)
    Info(version.name.removesuffix("_info"), version.help, registry=made).info({version.labels[0]: __version__})
    ProcessCollector(registry=made)
    return made


def gauge(name: str, registry: CollectorRegistry) -> Gauge:
    found = _row(name, GAUGE)
    return Gauge(found.name, found.help, found.labels, registry=registry)


def counter(name: str, registry: CollectorRegistry) -> Counter:
    found = _row(name, COUNTER)
    return Counter(found.name, found.help, found.labels, registry=registry)


def histogram(name: str, registry: CollectorRegistry, buckets: tuple[float, ...] = SECONDS) -> Histogram:
    found = _row(name, HISTOGRAM)
    return Histogram(found.name, found.help, found.labels, registry=registry, buckets=buckets)


class MetricFamily:
    """A gauge or info of a page that is computed at each observation."""

    def __init__(self, name: str) -> None:
        self.row = row(name)
        self.made: GaugeMetricFamily | InfoMetricFamily
        if self.row.type == INFO:
            self.made = InfoMetricFamily(name.removesuffix("_info"), self.row.help, labels=self.row.labels)
        else:
            self.made = GaugeMetricFamily(_row(name, GAUGE).name, self.row.help, labels=self.row.labels)

    def add(self, labels: tuple[str, ...], value: float = 1.0) -> None:
        """Add a sample. Raises ValueError if labels are missing, or there are too many."""
        if len(labels) != len(self.row.labels):
            raise ValueError(f"{self.row.name} has the labels {', '.join(self.row.labels)}, not {len(labels)} values")
        if isinstance(self.made, InfoMetricFamily):
            self.made.add_metric(labels, {})
        else:
            self.made.add_metric(labels, value)


class MetricFamilies:
    """The families of one page, created on demand and ordered as in the table."""

    def __init__(self) -> None:
        self._found: dict[str, MetricFamily] = {}

    def add(self, name: str, labels: tuple[str, ...], value: float = 1.0) -> None:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = MetricFamily(name)
        found.add(labels, value)

    def all(self) -> Iterator[GaugeMetricFamily | InfoMetricFamily]:
        for name in NAMES:
            if name in self._found:
                yield self._found[name].made


def _row(name: str, kind: str) -> Metric:
    found = row(name)
    if found.type != kind:
        raise ValueError(f"{name} is a {found.type} in the table")
    return found


class StateFileGauge:
    """The number of state files of a node that cannot be parsed."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauge = gauge("aliquot_state_files_unreadable", registry)

    def count(self, node: str, files: Iterable[Unreadable]) -> None:
        """Count only these files, by kind."""
        self._gauge.clear()
        for each in files:
            self._gauge.labels(node, each.kind).inc()
