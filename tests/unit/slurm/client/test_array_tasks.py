"""Counts of an array's waiting tasks."""

from __future__ import annotations

import pytest

from aliquot.slurm.client import scontrol_output
from aliquot.slurm.client.array_tasks import task_count


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1-16", 16),
        ("1-16%4", 16),
        ("0-20:4", 6),
        ("1-199:2", 100),
        ("7", 1),
        ("1,3,7-9%2", 5),
        ("0-999999", 1_000_000),
        ("1,3,5,...", 3),
        ("9-1", 0),
        ("1-5:0", 5),
        ("", 0),
        ("N/A", 0),
        ("-", 0),
    ],
)
def test_waiting_tasks_are_counted(text: str, count: int) -> None:
    assert task_count(text) == count


def test_records_of_an_array_in_text() -> None:
    record = "JobId=9 ArrayJobId=9 ArrayTaskId=1-16%4 ArrayTaskThrottle=4 JobName=x ArrayTaskId=1-99\n"
    lines = (
        "   JobState=PENDING Reason=Resources\n   RunTime=00:00:00 TimeLimit=1-02:30:00 TimeMin=N/A\n   NumNodes=2-4\n"
    )
    (job,) = scontrol_output.jobs(record + lines)
    assert (job.array_job, job.array_tasks, job.array_limit) == (9, 16, 4)
    assert (job.time_limit_s, job.node_count, job.node_limit) == (95_400, 2, 4)


@pytest.mark.parametrize(
    ("text", "seconds"), [("30:00", 1800), ("10:00:01", 36001), ("UNLIMITED", 0), ("Partition_Limit", 0), ("", 0)]
)
def test_time_limits(text: str, seconds: int) -> None:
    assert scontrol_output.duration_s(text) == seconds
