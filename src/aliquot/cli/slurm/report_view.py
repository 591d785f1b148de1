"""Output of ``aliquot slurm report``."""

from __future__ import annotations

import time
from collections.abc import Iterator

from aliquot.cli.framework.views import gpu_drawing as draw
from aliquot.core.rendering import usage_text as words
from aliquot.slurm.report.job_report import JobReport, TypeReport, TypeUse
from aliquot.slurm.report.window import Window

_HEAD = (
    *("type", "jobs", "waiting", "device-hours", "GPU-hours", "wait p50", "wait p90"),
    *("timed out", "failed", "of time limit"),
)
_USE_HEAD = ("type", "measured", "memory at most", "compute at most", "would do", "saves GPU-hours")


def text(report: JobReport, window: Window) -> str:
    """Format the report as a table of jobs, and one of their use."""
    span = f"jobs from {_date(window.since)} to {_date(window.until)}"
    if not report.types:
        return f"{span}: none with GPUs, or Slurm hides them (PrivateData)"
    lines = [span, "", *draw.table([_HEAD, *map(_row, report.types)], indent="")]
    used = [(each, each.use) for each in report.types if each.use is not None]
    if used:
        lines += ["", *draw.table([_USE_HEAD, *(_use_row(each, use) for each, use in used)], indent="")]
    return "\n".join(lines)


def notes(report: JobReport) -> Iterator[str]:
    """Return remarks on jobs that distort the report, or that it leaves out."""
    if report.lost:
        jobs = _jobs(report.lost)
        yield f"left out {jobs} without an end that slurmctld does not have: sacctmgr show runawayjobs"
    if report.ahead:
        yield f"{_jobs(report.ahead)} started later than now: the clocks of this host and of slurmctld differ"


def source(measured_by: str, reason: str) -> Iterator[str]:
    """Return a remark if DCGM measured nothing, for a reason. ``measured_by`` is ``slurm`` if Slurm did instead."""
    if reason and measured_by:
        yield f"the memory of jobs with one device is what Slurm measured; DCGM measured none: {reason}"
    elif reason:
        yield f"no use of GPUs was measured: {reason}"


def _row(each: TypeReport) -> tuple[str, ...]:
    return (
        _name(each.type),
        str(each.jobs),
        str(each.waiting or ""),
        _hours(each.device_hours),
        _hours(each.gpu_hours),
        _span(each.wait_p50_s),
        _span(each.wait_p90_s),
        _share(each.timed_out),
        _share(each.failed),
        _share(each.limit_used),
    )


def _use_row(each: TypeReport, use: TypeUse) -> tuple[str, ...]:
    total = f" of {words.gib(each.memory_mib)}" if each.memory_mib else ""
    return (
        _name(each.type),
        f"{use.judged} of {each.jobs} jobs",
        f"{words.gib(use.memory_mib)}{total} GiB",
        _share(use.compute) or words.NOT_MEASURED,
        _would_do(use),
        _hours(use.saved_gpu_hours) if use.suggestions else "",
    )


def _would_do(use: TypeUse) -> str:
    if not use.judged:
        return "not measured for long enough"
    found = [f"{each.profile} for {_jobs(each.jobs)}" for each in use.suggestions]
    return ", ".join(found) or "nothing smaller"


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number} jobs"


def _name(kind: str) -> str:
    return kind or "(no type)"


def _hours(hours: float | None) -> str:
    return "" if hours is None else f"{hours:.2f}" if hours < 10 else f"{hours:.0f}"


def _span(seconds: int | None) -> str:
    return "" if seconds is None else words.span(seconds)


def _share(share: float | None) -> str:
    return "" if share is None else words.percent(share)


def _date(moment: int) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(moment))
