"""The one table of every metric of every process. Pages, documentation, alerts, dashboard and tests read it.

A page that exports a metric outside the table fails a test, and so does a row that no page exports.
"""

from __future__ import annotations

from aliquot.metrics import gpu_metrics as rows_gpus
from aliquot.metrics import process_metrics as rows_processes
from aliquot.metrics.metric import Metric

TABLE: tuple[Metric, ...] = (*rows_gpus.ROWS, *rows_processes.ROWS)
NAMES: dict[str, Metric] = {row.name: row for row in TABLE}
STANDARD = ("process_",)
"""Prefixes of names from the client library, which it exports for every process."""


def row(name: str) -> Metric:
    """Return the row of a name. Raises KeyError for a name that is not in the table."""
    return NAMES[name]


def base(sample: str) -> str:
    """Return the table's name of a sample on a page: without ``_bucket``, ``_sum`` and ``_count``."""
    for suffix in ("_bucket", "_sum", "_count"):
        bare = sample.removesuffix(suffix)
        if bare != sample and bare in NAMES and NAMES[bare].type == "histogram":
            return bare
    return sample
