"""How many state files of a node cannot be understood."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry

from aliquot.foundation.state_store import Unreadable
from aliquot.metrics import instruments as make


class StateFileGauge:
    """The gauge on one page."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauge = make.gauge("aliquot_state_files_unreadable", registry)

    def count(self, node: str, files: Iterable[Unreadable]) -> None:
        """Count these files by their kinds, and no others."""
        self._gauge.clear()
        for each in files:
            self._gauge.labels(node, each.kind).inc()
