"""The one table of every metric of every process: pages, documentation, alerts, dashboard and tests read it.

A page that exports what is not here, or a row that no page exports, fails a test.
"""

from __future__ import annotations

from aliquot.metrics import gpu_metrics as rows_gpus
from aliquot.metrics import process_metrics as rows_processes
from aliquot.metrics.metric import Metric

TABLE: tuple[Metric, ...] = (*rows_gpus.ROWS, *rows_processes.ROWS)
NAMES: dict[str, Metric] = {row.name: row for row in TABLE}
STANDARD = ("process_",)
"""How names begin that are not ours: what the client library says of every process."""


def row(name: str) -> Metric:
    """Raises KeyError for a name that is not in the table."""
    return NAMES[name]


def base(sample: str) -> str:
    """The name in the table that a sample on a page belongs to: without ``_bucket``, ``_sum`` and ``_count``."""
    for suffix in ("_bucket", "_sum", "_count"):
        bare = sample.removesuffix(suffix)
        if bare != sample and bare in NAMES and NAMES[bare].type == "histogram":
            return bare
    return sample
