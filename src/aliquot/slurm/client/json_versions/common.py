"""Fields that have the same name in every version."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.client.array_tasks import task_count
from aliquot.slurm.client.json_versions.coerce import Raw, number, text, words
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode
from aliquot.slurm.client.states import job_state, reason_word
from aliquot.slurm.conf import hostlist

_REQUEST_KEYS = {"tres_per_node": "node", "tres_per_job": "job", "tres_per_task": "task", "tres_per_socket": "socket"}


def node_of(raw: Raw, states: frozenset[str], *, version: str) -> SlurmNode:
    cpus, allocated = number(raw.get("cpus")), number(raw.get("alloc_cpus"))
    if "ALLOCATED" in states and allocated < (number(raw.get("effective_cpus")) or cpus):
        states = states - {"ALLOCATED"} | {"MIXED"}  # scontrol derives MIXED, slurmrestd does not
    return SlurmNode(
        name=text(raw.get("name")),
        states=states,
        hostname=text(raw.get("hostname")),
        address=text(raw.get("address")),
        port=number(raw.get("port")),
        reason=text(raw.get("reason")),
        comment=text(raw.get("comment")),
        extra=text(raw.get("extra")),
        features=words(raw.get("features")),
        active_features=words(raw.get("active_features")),
        gres=grestext.parse_listed(text(raw.get("gres"))),
        gres_used=grestext.parse_listed(text(raw.get("gres_used"))),
        partitions=words(raw.get("partitions")),
        cpus=cpus,
        cpus_allocated=allocated,
        sockets=number(raw.get("sockets")),
        cores=number(raw.get("cores")),
        threads=number(raw.get("threads")),
        memory_mib=number(raw.get("real_memory")),
        version=version,
        slurmd_start=number(raw.get("slurmd_start_time")),
        last_busy=number(raw.get("last_busy")),
        weight=number(raw.get("weight")),
    )


def job_of(raw: Raw, states: Iterable[str], *, exclusive: bool) -> SlurmJob:
    at_least, cpus = max(number(raw.get("node_count")), 1), max(number(raw.get("cpus")), 1)
    per_cpu, names = number(raw.get("memory_per_cpu")), hostlist.expand(text(raw.get("nodes")))
    reason, state = reason_word(text(raw.get("state_reason"))), job_state(states)
    minutes = number(raw.get("time_limit"))
    # For a job without a limit, Slurm writes a date that is a year ahead.
    limited = state != "PENDING" and minutes > 0
    return SlurmJob(
        id=number(raw.get("job_id")),
        state=state,
        user=text(raw.get("user_name")),
        name=text(raw.get("name")),
        reason="" if reason == "None" else reason,
        partitions=words(raw.get("partition")),
        nodes=tuple(sorted(names)),
        requested=tuple(
            (how, each) for key, how in _REQUEST_KEYS.items() for each in grestext.requested_gpus(text(raw.get(key)))
        ),
        allocated=_allocated(names, raw.get("gres_detail")),
        features=text(raw.get("features")),
        node_count=at_least,
        node_limit=number(raw.get("max_nodes")),
        tasks=max(number(raw.get("tasks")), 1),
        cpus=cpus,
        memory_mib=per_cpu * -(-cpus // at_least) if per_cpu else number(raw.get("memory_per_node")),
        priority=number(raw.get("priority")),
        submitted=number(raw.get("submit_time")),
        eligible=number(raw.get("eligible_time")),
        time_limit_s=60 * minutes,
        latest_end=number(raw.get("end_time")) if limited else 0,
        required_nodes=hostlist.expand(text(raw.get("required_nodes"))),
        excluded_nodes=hostlist.expand(text(raw.get("excluded_nodes"))),
        reservation=text(raw.get("resv_name")),
        exclusive=exclusive,
        requeue=raw.get("requeue") is not False,
        array_job=number(raw.get("array_job_id")),
        array_tasks=max(task_count(text(raw.get("array_task_string"))), 1),
        array_limit=number(raw.get("array_max_tasks")),
    )


def _allocated(names: tuple[str, ...], details: object) -> tuple[tuple[str, Gres], ...]:
    """Return a job's GRES by node. The details have one text per node, in the order of the nodes."""
    each_has = details if isinstance(details, list) else []
    found = [(name, g) for name, has in zip(names, each_has, strict=False) for g in grestext.parse_listed(text(has))]
    return tuple(sorted(found, key=lambda pair: pair[0]))
