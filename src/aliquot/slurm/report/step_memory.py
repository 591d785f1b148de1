"""Peaks of jobs, as Slurm itself measured them: the GPU memory of each step, where nodes detect GPUs by NVML."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aliquot.slurm.gpus.type_facts import TypeFacts
from aliquot.slurm.report.accounting import AccountingJob
from aliquot.slurm.report.measured import JobPeak


def peaks_of_steps(
    jobs: Iterable[AccountingJob], memory: Mapping[int, int], facts: Mapping[str, TypeFacts]
) -> dict[tuple[int, str], JobPeak]:
    """Return the peaks of the jobs that had a single device, from the memory in MiB by job.

    Slurm adds up the memory of a job's devices, so that of others is not known. Compute instances are left out, as they
    are in DCGM's measurements.
    """
    found = {}
    for job in jobs:
        kinds = [kind for kind, count in job.devices for _ in range(min(count, 2))]
        profile = facts[kinds[0]].profile if kinds and kinds[0] in facts else ""
        if len(kinds) == 1 and job.id in memory and not _is_compute_instance(profile):
            found[job.id, profile] = JobPeak(memory[job.id], None, None)
    return found


def _is_compute_instance(profile: str) -> bool:
    return profile.partition(".")[0].endswith("c")
