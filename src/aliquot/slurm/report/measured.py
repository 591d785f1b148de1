"""Peaks of jobs, as DCGM measured them: PromQL queries of the metrics of dcgm-exporter, and their results.

dcgm-exporter adds the label ``hpc_job`` to the metrics of a GPU or GPU instance that a job has (``jobs.dcgm_mapping``),
and to those of an instance its profile as ``GPU_I_PROFILE``. A query covers one day at most, because Prometheus refuses
queries that load too many samples.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from aliquot.errors import UsageError
from aliquot.slurm.report.window import Window

MEMORY = "DCGM_FI_DEV_FB_USED"
"""Memory in use, in MiB."""
COMPUTE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
"""Share of time in which any engine computed."""
CHUNK_S = 86400
STEP_S = 300
"""Presence of a metric is checked in steps of this length, whatever the scrape interval is."""
_MOST_MIB = 16 << 20
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_BY = "by (hpc_job, GPU_I_PROFILE)"

Sample = tuple[Mapping[str, str], float]
Ask = Callable[[str, float], Iterable[Sample]]
"""Return the result of an instant query at a time."""


class JobPeak(msgspec.Struct, frozen=True):
    """The largest use of one device of a job, of all its devices with one profile."""

    memory_mib: int
    compute: float | None = None
    """None if it was not measured."""
    seen_s: int | None = 0
    """The time for which its memory was measured, in steps of ``STEP_S`` seconds; None for all of it."""


Peaks = Mapping[tuple[int, str], JobPeak]
"""By job and profile in lower case, "" for whole GPUs."""


class LabelMatch(msgspec.Struct, frozen=True):
    """A label that metrics must have, for example the name of the cluster: ids of jobs are not unique across them."""

    name: str
    value: str

    @classmethod
    def parse(cls, text: str) -> LabelMatch:
        """Parse ``cluster=alpha``. Raises UsageError."""
        name, mark, value = text.partition("=")
        if not mark or not _LABEL.fullmatch(name):
            raise UsageError(
                f"invalid label {text!r}: use NAME=VALUE",
                next_step="aliquot slurm report --prometheus-label cluster=NAME",
            )
        return cls(name, value)

    def __str__(self) -> str:
        quoted = self.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'{self.name}="{quoted}"'


def read_peaks(window: Window, ask: Ask, labels: Sequence[LabelMatch] = ()) -> Peaks:
    """Return the peaks of all jobs that were measured in a window, by metrics with these labels."""
    chosen = ",".join(['hpc_job!=""', *map(str, labels)])
    memory_of, compute_of = f"{MEMORY}{{{chosen}}}", f"{COMPUTE}{{{chosen}}}"
    memory: dict[tuple[int, str], float] = {}
    compute: dict[tuple[int, str], float] = {}
    seen: dict[tuple[int, str], float] = {}
    for chunk in _chunks(window):
        length = chunk.length_s
        _merge(memory, _results(ask, f"max {_BY} (max_over_time({memory_of}[{length}s]))", chunk), max)
        _merge(compute, _results(ask, f"max {_BY} (max_over_time({compute_of}[{length}s]))", chunk), max)
        steps = f"min {_BY} (count_over_time({memory_of}[{length}s:{STEP_S}s]))"
        _merge(seen, _results(ask, steps, chunk), lambda one, other: one + other)
    return {
        key: JobPeak(math.ceil(value), _share(compute.get(key)), int(seen.get(key, 0)) * STEP_S)
        for key, value in memory.items()
        if 0 <= value <= _MOST_MIB
    }


def _chunks(window: Window) -> Iterator[Window]:
    until = window.until
    while until > window.since:
        since = max(window.since, until - CHUNK_S)
        yield Window(since, until)
        until = since


def _results(ask: Ask, expression: str, chunk: Window) -> Iterator[tuple[tuple[int, str], float]]:
    for labels, value in ask(expression, chunk.until):
        job = labels.get("hpc_job", "")
        if job.isascii() and job.isdecimal() and len(job) < 19 and math.isfinite(value):
            yield (int(job), labels.get("GPU_I_PROFILE", "").lower()), value


def _merge(
    into: dict[tuple[int, str], float],
    found: Iterable[tuple[tuple[int, str], float]],
    join: Callable[[float, float], float],
) -> None:
    for key, value in found:
        into[key] = join(into[key], value) if key in into else value


def _share(value: float | None) -> float | None:
    return value if value is not None and 0 <= value <= 1 else None
