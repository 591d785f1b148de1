"""The queue as ``squeue`` lists it, with only the fields that a controller needs: a tenth of the full records.

Of the fields that are listed, users cannot choose one freely: no name and no comment is among them, and Slurm accepts
only features and nodes that exist. So a job cannot pose as another one, as it could in the output of scontrol.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client import scontrol_output as text
from aliquot.slurm.client.array_tasks import task_count
from aliquot.slurm.client.models import Gres, SlurmJob
from aliquot.slurm.client.states import job_state, reason_word
from aliquot.slurm.conf import hostlist

_REQUESTS = {"tres-per-node": "node", "tres-per-job": "job", "tres-per-task": "task", "tres-per-socket": "socket"}
_FIELDS = (
    *_REQUESTS,
    "Feature",
    *("JobID", "ArrayJobID", "ArrayTaskID", "State", "UserName", "Partition", "NodeList", "NumNodes", "NumTasks"),
    *("NumCPUs", "MinMemory", "tres-alloc", "PriorityLong", "SubmitTime", "EligibleTime", "TimeLimit", "ReqNodes"),
    *("Reservation", "Reason"),
)
EXCLUDED = "ExcNodes"
"""A field that 22.05 does not have; it has ``%x`` of the short format."""
EXCLUDED_FORMAT = "%A|%x"
_MOST_SPREAD = 200
_SEPARATOR = "\x1f"
_NONE = frozenset({"", "(null)", "N/A"})


def format_words(*, excluded: bool) -> tuple[str, ...]:
    """Return the options of squeue."""
    fields = (*_FIELDS, EXCLUDED) if excluded else _FIELDS
    return ("--all", "--noheader", "--Format=" + ",".join(f"{each}:{_SEPARATOR}" for each in fields))


def jobs(listing: str) -> tuple[SlurmJob, ...]:
    """Parse the listing: jobs that have resources, and pending jobs that request GPUs or have a constraint.

    Other pending jobs are skipped, because most of a long queue is none of the controller's business.
    """
    found = []
    for line in listing.split("\n"):
        values = line.split(_SEPARATOR)
        if len(values) > len(_FIELDS) and (_needs_gpus(values) or values[8] != "PENDING"):
            found.append(_job(values))
    return tuple(found)


def excluded_nodes(listing: str) -> dict[int, tuple[str, ...]]:
    """Parse a listing of ``EXCLUDED_FORMAT``: the nodes that each job excludes."""
    pairs = (line.partition("|") for line in listing.split("\n"))
    return {int(job): _names(names) for job, _, names in pairs if names.strip() not in _NONE and job.isdecimal()}


def with_details(jobs: Iterable[SlurmJob]) -> tuple[SlurmJob, ...]:
    """Return the jobs whose full records are needed.

    Those are the jobs that have resources, and the first pending ones with GPUs per task or per job: the listing does
    not tell whether Slurm may spread them over nodes.
    """
    listed = tuple(jobs)
    spread = [j for j in listed if j.pending and any(how in ("task", "job") for how, _ in j.requested)]
    first = sorted(spread, key=lambda j: (-j.priority, j.submitted, j.id))[:_MOST_SPREAD]
    return (*(j for j in listed if not j.pending), *first)


def _needs_gpus(values: list[str]) -> bool:
    return values[4] not in _NONE or any("gpu" in each for each in values[:4])


def _job(values: list[str]) -> SlurmJob:
    per_node, per_job, per_task, per_socket, feature, number, array, task, state, user, partition, nodes = values[:12]
    count, tasks, cpus, memory, total, priority, submitted, eligible, limit, required, reservation, reason = values[
        12:24
    ]
    at_least, in_array = max(_int(count), 1), task not in _NONE
    word = reason_word(reason)
    return SlurmJob(
        id=_int(number),
        state=job_state([state]),
        user=user,
        reason="" if word in ("None", "(null)") else word,
        partitions=_words(partition),
        nodes=tuple(sorted(_names(nodes))),
        requested=_requested(per_node, per_job, per_task, per_socket),
        features="" if feature in _NONE else feature,
        node_count=at_least,
        tasks=max(_int(tasks), 1),
        cpus=max(_int(cpus), 1),
        memory_mib=_memory_mib(memory, total, max(_int(cpus), 1), at_least),
        priority=_int(priority),
        submitted=_int(submitted),
        eligible=_int(eligible),
        time_limit_s=text.duration_s(limit),
        required_nodes=_names(required),
        excluded_nodes=_names(values[24]) if len(values) > len(_FIELDS) + 1 else (),
        reservation="" if reservation in _NONE else reservation,
        array_job=_int(array) if in_array else 0,
        array_tasks=(task_count(task) or 1) if in_array else 1,
        array_limit=_int(task.partition("%")[2]),
    )


@lru_cache(maxsize=4096)
def _requested(*values: str) -> tuple[tuple[str, Gres], ...]:
    units = zip(_REQUESTS.values(), values, strict=True)
    return tuple((how, each) for how, value in units for each in grestext.requested_gpus(value))


@lru_cache(maxsize=4096)
def _memory_mib(memory: str, total: str, cpus: int, nodes: int) -> int:
    """Return a job's memory per node. The listing does not tell ``--mem`` from ``--mem-per-cpu``, but has the sum."""
    least = text.mib(memory)
    whole = text.mib(total.partition("mem=")[2].partition(",")[0])
    per_cpu = least * cpus == whole and least * nodes != whole
    return least * -(-cpus // nodes) if per_cpu else least


@lru_cache(maxsize=4096)
def _names(value: str) -> tuple[str, ...]:
    return () if value in _NONE else hostlist.expand(value)


@lru_cache(maxsize=4096)
def _words(value: str) -> tuple[str, ...]:
    return tuple(each for each in value.split(",") if each)


def _int(value: str) -> int:
    return int(value) if value.isdecimal() else 0
