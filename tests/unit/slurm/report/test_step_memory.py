"""Peaks of jobs from the memory that Slurm measured."""

from __future__ import annotations

from aliquot.slurm.gpus.type_facts import facts_of_types
from aliquot.slurm.report.accounting import AccountingJob
from aliquot.slurm.report.measured import JobPeak
from aliquot.slurm.report.step_memory import peaks_of_steps

FACTS = facts_of_types([("a100_3g.20gb", "a100_1c.3g.20gb", "a100")])


def job(number: int, *devices: tuple[str, int]) -> AccountingJob:
    return AccountingJob(number, "COMPLETED", 1, 2, 3, None, devices)


def test_only_the_memory_of_a_single_device_is_known() -> None:
    jobs = [
        job(1, ("a100_3g.20gb", 1)),
        job(2, ("a100_3g.20gb", 2)),
        job(3, ("a100_3g.20gb", 1), ("a100", 1)),
        job(4, ("a100", 1)),
        job(5, ("a100_1c.3g.20gb", 1)),
        job(6, ("", 1)),
        job(7, ("a100", 1)),
    ]
    memory = dict.fromkeys(range(1, 7), 4000)
    assert peaks_of_steps(jobs, memory, FACTS) == {
        (1, "3g.20gb"): JobPeak(4000, None, None),
        (4, ""): JobPeak(4000, None, None),
        (6, ""): JobPeak(4000, None, None),
    }
