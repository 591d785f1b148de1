"""Report on jobs by the type of their devices: counts, hours, waits, ends, and what would do in place of the type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from aliquot.slurm.gpus.type_facts import TypeFacts, shares_of
from aliquot.slurm.report.accounting import AccountingJob
from aliquot.slurm.report.measured import STEP_S, JobPeak, Peaks
from aliquot.slurm.report.smaller import SmallerProfile, smaller_profile
from aliquot.slurm.report.window import Window
from aliquot.slurm.types.near import size_order

LEAST_S = 300
"""A job that ran for less has too few measurements for a suggestion."""
PARTLY_S = 24 * 3600
"""A job that did not begin and end in the window must have run for so long in it."""
_SEEN_SHARE = 0.9
"""Share of a job's time that must have been measured."""
_TIMED_OUT = frozenset({"TIMEOUT", "DEADLINE"})
_FAILED = frozenset({"FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "BOOT_FAIL", "LAUNCH_FAILED"})
_CLOCK_S = 60
"""Difference between the clocks of two hosts that is not worth a note, in seconds."""


class Suggestion(msgspec.Struct, frozen=True):
    """A smaller profile that would do for some jobs of a type."""

    profile: str
    memory_mib: int
    jobs: int
    device_hours: float
    saved_gpu_hours: float


class TypeUse(msgspec.Struct, frozen=True):
    """The measured use of the jobs of a type."""

    jobs: int
    """Jobs with a measurement."""
    judged: int
    """Those that were measured for long enough to say what would do."""
    memory_mib: int
    """The largest use of one device."""
    compute: float | None
    """The largest share of time in which one device computed; None if it was not measured."""
    suggestions: tuple[Suggestion, ...]
    """The profile with the most hours first."""
    saved_gpu_hours: float
    """Hours of whole GPUs, by billing share, that the suggestions save together."""


class TypeReport(msgspec.Struct, frozen=True):
    """The jobs of one type in the window. A job with devices of two types counts in both."""

    type: str
    """"" for GPUs without a type."""
    jobs: int
    """Jobs that ran in the window. A job that was requeued counts for each of its runs."""
    waiting: int
    """Jobs that still wait."""
    ended: int
    timed_out: float | None
    """Share of the ended jobs that reached their time limit; None if none has ended. The same holds for ``failed``."""
    failed: float | None
    device_hours: float
    """Hours for which jobs had devices in the window."""
    gpu_hours: float | None
    """The same in hours of whole GPUs, by billing share; None if the catalog does not know the type."""
    limit_used: float | None
    """Share of the requested time limits that the ended jobs used; None if no ended job has one."""
    wait_p50_s: int | None
    """Waits of the jobs that started in the window; None if none has. The same holds for ``wait_p90_s``."""
    wait_p90_s: int | None
    memory_mib: int | None
    """Memory of a device, from the catalog."""
    use: TypeUse | None
    """None if no job was measured."""


class JobReport(msgspec.Struct, frozen=True):
    """The report, and what it leaves out."""

    types: tuple[TypeReport, ...]
    """Whole GPUs, then MIG devices from large to small."""
    lost: int
    """Jobs without an end that slurmctld does not have. Nothing counts them."""
    ahead: int
    """Jobs that started later than this host's clock."""


def build_report(
    jobs: Iterable[AccountingJob],
    window: Window,
    facts: Mapping[str, TypeFacts],
    peaks: Peaks,
    running: Collection[int] | None,
) -> JobReport:
    """Return the report. ``running`` are the jobs that slurmctld has, None if they are not known."""
    by_type: dict[str, list[tuple[AccountingJob, int]]] = {}
    lost = ahead = 0
    for job in jobs:
        if _is_lost(job, window, running):
            lost += 1
            continue
        ahead += job.start > window.until + _CLOCK_S
        for kind, count in job.devices:
            by_type.setdefault(kind, []).append((job, count))
    types = tuple(
        _type_report(kind, by_type[kind], window, facts.get(kind, TypeFacts()), peaks)
        for kind in sorted(by_type, key=size_order)
    )
    return JobReport(types, lost, ahead)


def _is_lost(job: AccountingJob, window: Window, running: Collection[int] | None) -> bool:
    """Report whether slurmctld forgot a job before it recorded the end. A job that has just started may be new."""
    old = bool(job.start) and not job.end and job.start < window.until - _CLOCK_S
    return running is not None and old and job.id not in running


def _type_report(
    kind: str, having: Sequence[tuple[AccountingJob, int]], window: Window, facts: TypeFacts, peaks: Peaks
) -> TypeReport:
    ran = [(job, count) for job, count in having if job.start]
    ended = [job for job, _ in ran if job.end]
    waits = sorted(max(0, job.start - job.queued) for job, _ in ran if job.start >= window.since)
    hours = sum(count * window.overlap_s(job.start, job.end) for job, count in ran) / 3600
    shares = shares_of(facts)
    states = Counter(job.state for job in ended)
    return TypeReport(
        type=kind,
        jobs=len(ran),
        waiting=sum(job.state == "PENDING" for job, _ in having),
        ended=len(ended),
        timed_out=_part(sum(states[each] for each in _TIMED_OUT), len(ended)),
        failed=_part(sum(states[each] for each in _FAILED), len(ended)),
        device_hours=round(hours, 2),
        gpu_hours=round(hours * float(shares[0].share), 2) if shares else None,
        limit_used=_limit_used(ended),
        wait_p50_s=_percentile(waits, 50),
        wait_p90_s=_percentile(waits, 90),
        memory_mib=facts.memory_mib,
        use=_use(ran, window, facts, peaks),
    )


def _part(number: int, total: int) -> float | None:
    return round(number / total, 4) if total else None


def _limit_used(ended: Iterable[AccountingJob]) -> float | None:
    pairs = [(job.end - job.start, job.limit_s) for job in ended if job.limit_s]
    return _part(sum(ran for ran, _ in pairs), sum(limit for _, limit in pairs if limit))


def _percentile(ascending: Sequence[int], percent: int) -> int | None:
    """Return the least value that as many percent of the values do not exceed."""
    return ascending[-(-len(ascending) * percent // 100) - 1] if ascending else None


def _use(ran: Iterable[tuple[AccountingJob, int]], window: Window, facts: TypeFacts, peaks: Peaks) -> TypeUse | None:
    # The profile of dcgm-exporter is that of the GPU instance, whose memory compute instances share.
    found = [(job, count, peaks.get((job.id, facts.profile))) for job, count in ran]
    measured = [(job, count, peak) for job, count, peak in found if peak is not None]
    if not measured:
        return None
    judged = [each for each in measured if _is_judged(each[0], each[2], window)]
    suggestions = _suggestions(judged, window, facts)
    return TypeUse(
        jobs=len(measured),
        judged=len(judged),
        memory_mib=max(peak.memory_mib for _, _, peak in measured),
        compute=max((peak.compute for _, _, peak in measured if peak.compute is not None), default=None),
        suggestions=suggestions,
        saved_gpu_hours=round(sum(each.saved_gpu_hours for each in suggestions), 2),
    )


def _is_judged(job: AccountingJob, peak: JobPeak, window: Window) -> bool:
    """Report whether a job was measured for long enough, and nearly all of the time."""
    ran = window.overlap_s(job.start, job.end)
    whole = job.start >= window.since and job.end > 0
    # A job that began and ended within a step has one step less than its time.
    seen = peak.seen_s is None or peak.seen_s + STEP_S >= ran * _SEEN_SHARE
    return seen and ran >= (LEAST_S if whole else PARTLY_S)


def _suggestions(
    judged: Iterable[tuple[AccountingJob, int, JobPeak]], window: Window, facts: TypeFacts
) -> tuple[Suggestion, ...]:
    hours: dict[SmallerProfile, float] = {}
    jobs: Counter[SmallerProfile] = Counter()
    for job, count, peak in judged:
        smaller = smaller_profile(facts, peak.memory_mib, peak.compute)
        if smaller is not None:
            jobs[smaller] += 1
            hours[smaller] = hours.get(smaller, 0.0) + count * window.overlap_s(job.start, job.end) / 3600
    found = [
        Suggestion(each.profile, each.memory_mib, jobs[each], round(hours[each], 2), round(hours[each] * each.saved, 2))
        for each in hours
    ]
    return tuple(sorted(found, key=lambda each: (-each.device_hours, each.profile)))
