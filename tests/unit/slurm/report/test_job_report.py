"""Reports on jobs by type."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.slurm.gpus.type_facts import facts_of_types
from aliquot.slurm.report.accounting import AccountingJob
from aliquot.slurm.report.job_report import JobReport, TypeReport, build_report
from aliquot.slurm.report.measured import JobPeak, Peaks
from aliquot.slurm.report.window import Window

SMALL, BIG = "a100_1g.5gb", "a100_3g.20gb"
FACTS = facts_of_types([(SMALL, BIG, "a100")])
HOUR = 3600
WINDOW = Window(100 * HOUR, 200 * HOUR)


def job(number: int = 1, kind: str = BIG, **more: Any) -> AccountingJob:
    """Return a job that ran for an hour in the window, with changes."""
    fields: dict[str, Any] = {"state": "COMPLETED", "queued": 109 * HOUR, "start": 110 * HOUR, "end": 111 * HOUR}
    fields |= {"limit_s": 4 * HOUR, "devices": ((kind, 1),)}
    return AccountingJob(id=number, **(fields | more))


def report(*jobs: AccountingJob, peaks: Peaks | None = None, running: frozenset[int] | None = None) -> JobReport:
    return build_report(jobs, WINDOW, FACTS, peaks or {}, running)


def only(*jobs: AccountingJob, peaks: Peaks | None = None) -> TypeReport:
    (found,) = report(*jobs, peaks=peaks).types
    return found


def test_a_job_counts_under_each_of_its_types_large_ones_first() -> None:
    found = report(job(devices=((SMALL, 2), (BIG, 1), ("a100", 1)))).types
    assert [(each.type, each.jobs, each.device_hours, each.gpu_hours) for each in found] == [
        ("a100", 1, 1.0, 1.0),
        (BIG, 1, 1.0, 0.5),
        (SMALL, 1, 2.0, 0.29),
    ]


def test_only_the_hours_in_the_window_count() -> None:
    running = job(2, start=190 * HOUR, end=0, state="RUNNING")
    assert only(job(start=90 * HOUR, end=101 * HOUR), running).device_hours == 1 + 10


def test_shares_are_of_the_jobs_that_ended() -> None:
    states = ["COMPLETED", "TIMEOUT", "DEADLINE", "FAILED", "OUT_OF_MEMORY", "NODE_FAIL", "CANCELLED", "PREEMPTED"]
    found = only(*(job(n, state=s) for n, s in enumerate(states)), job(20, state="RUNNING", end=0))
    assert (found.jobs, found.ended, found.timed_out, found.failed) == (9, 8, 0.25, 0.375)
    assert found.limit_used == 0.25
    nothing = only(job(state="RUNNING", end=0, limit_s=None))
    assert (nothing.timed_out, nothing.failed, nothing.limit_used) == (None, None, None)


def test_waits_are_those_of_jobs_that_started_in_the_window() -> None:
    jobs = [job(n, queued=110 * HOUR - n) for n in range(1, 11)]
    before = job(20, queued=0, start=90 * HOUR)
    clock = job(21, queued=111 * HOUR)  # queued later than it started
    found = only(*jobs, before, clock)
    assert (found.wait_p50_s, found.wait_p90_s) == (5, 9)
    assert only(before).wait_p50_s is None


def test_a_waiting_job_is_not_one_that_ran() -> None:
    found = only(job(state="PENDING", start=0, end=0), job(2, state="CANCELLED", start=0))
    assert (found.jobs, found.waiting, found.device_hours) == (0, 1, 0.0)


def test_a_type_that_the_catalog_does_not_know_has_no_gpu_hours() -> None:
    found = only(job(devices=(("", 1),)), job(2, devices=(("", 1),)))
    assert (found.device_hours, found.gpu_hours, found.memory_mib) == (2.0, None, None)


def test_a_job_without_an_end_that_slurmctld_does_not_have_is_left_out() -> None:
    gone = job(1, state="RUNNING", end=0)
    here = job(2, state="RUNNING", end=0)
    new = job(3, state="RUNNING", end=0, start=WINDOW.until - 30)
    found = report(gone, here, new, job(4), running=frozenset({2}))
    assert (found.lost, found.types[0].jobs) == (1, 3)
    assert report(gone).lost == 0  # Slurm may hide the jobs of others


def test_jobs_of_a_clock_that_is_ahead_are_named_and_take_no_hours() -> None:
    found = report(job(start=WINDOW.until + 100, end=0, state="RUNNING"))
    assert (found.ahead, found.types[0].device_hours) == (1, 0.0)


def test_what_would_do_is_decided_job_by_job() -> None:
    peaks = {
        (1, "3g.20gb"): JobPeak(4000, None, HOUR),
        (2, "3g.20gb"): JobPeak(8000, 0.4, 3 * HOUR),
        (2, ""): JobPeak(39000, 0.4, HOUR),  # of another device
        (3, "3g.20gb"): JobPeak(19000, 0.9, HOUR),
    }
    found = only(job(1), job(2, devices=((BIG, 2),), end=113 * HOUR), job(3), job(4), peaks=peaks).use
    assert found is not None
    assert (found.jobs, found.judged, found.memory_mib, found.compute) == (3, 3, 19000, 0.9)
    assert [(each.profile, each.jobs, each.device_hours, each.saved_gpu_hours) for each in found.suggestions] == [
        ("2g.10gb", 1, 6.0, 1.29),
        ("1g.5gb", 1, 1.0, 0.36),
    ]
    assert found.saved_gpu_hours == 1.65


@pytest.mark.parametrize(
    ("more", "seen_s", "judged"),
    [
        ({}, HOUR, 1),
        ({}, 3000, 1),
        ({}, None, 1),
        ({}, 2700, 0),  # not measured for part of the time
        ({"end": 110 * HOUR + 299}, HOUR, 0),  # too short
        ({"end": 0, "start": 180 * HOUR}, 20 * HOUR, 0),  # running for less than a day
        ({"end": 0, "start": 170 * HOUR}, 30 * HOUR, 1),
        ({"start": 90 * HOUR, "end": 110 * HOUR}, 10 * HOUR, 0),  # began before the window
        ({"start": 90 * HOUR, "end": 150 * HOUR}, 50 * HOUR, 1),
    ],
)
def test_a_suggestion_needs_enough_measurements(more: dict[str, Any], seen_s: int | None, judged: int) -> None:
    found = only(job(**more), peaks={(1, "3g.20gb"): JobPeak(4000, None, seen_s)}).use
    assert found is not None
    assert (found.jobs, found.judged, len(found.suggestions)) == (1, judged, judged)


def test_the_memory_of_a_compute_instance_is_not_that_of_one_job() -> None:
    assert only(job(kind="a100_1c.3g.20gb"), peaks={(1, "3g.20gb"): JobPeak(4000, None, HOUR)}).use is None
