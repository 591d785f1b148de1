"""Demand of pending jobs: the GPU types, counts and nodes that they need, and jobs that no repartition can help."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

import msgspec

from aliquot.errors import Message
from aliquot.slurm.client import pending_reasons as reasons
from aliquot.slurm.client.models import SlurmJob, SlurmPartition, SlurmReservation

_WORDS = re.compile(r"[A-Za-z_=][A-Za-z0-9_.=\-]*")


class JobDemand(msgspec.Struct, frozen=True):
    """The devices that a pending job waits for."""

    job: int
    need: dict[str, int]
    """Devices by type on each node."""
    nodes: int = 1
    copies: int = 1
    """How many times the request could start now: the waiting tasks of an array that may run."""
    spread: bool = False
    """True if the copies are parts of one job that start together, each on any node."""
    priority: int = 0
    submitted: int = 0
    eligible: int = 0
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    """Other features that its nodes must have."""
    layouts: tuple[str, ...] = ()
    """Features that stand for layouts; the job requests one of them."""
    required: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    reserved: frozenset[str] = frozenset()
    """Nodes where Slurm does not start it, because a reservation of others begins before it would end."""
    cpus: int = 1
    memory_mib: int = 0
    user: str = ""
    reason: str = ""
    time_limit_s: int = 0
    """The job's time limit in seconds; 0 if it has none."""
    follows: bool = False
    """True if other jobs come first in Slurm's own order."""

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key of the order of service: priority, then age, then job number."""
        return -self.priority, self.submitted, self.job


class UnservedJob(msgspec.Struct, frozen=True):
    """A pending job that the controller ignores."""

    job: int
    why: str
    reason: str = ""
    """Slurm's pending reason."""
    user: str = ""
    next_step: str = ""
    """The command that helps the job, or shows more."""


class JobQueue(msgspec.Struct, frozen=True):
    """The pending jobs that request GPUs: ``demands`` in the order of service, and those that are ignored."""

    demands: tuple[JobDemand, ...] = ()
    unserved: tuple[UnservedJob, ...] = ()


def job_queue(
    jobs: Iterable[SlurmJob],
    partitions: Iterable[SlurmPartition],
    layouts: Mapping[str, object],
    now: float,
    reservations: Sequence[SlurmReservation] = (),
) -> JobQueue:
    """Return the queue at the time ``now`` (seconds since the epoch)."""
    listed = tuple(jobs)
    up = {p.name for p in partitions if p.up}
    headroom = _array_headroom(listed)
    pending = (job for job in listed if job.pending and (job.requested or _layouts(job.features, layouts)))
    demands: list[JobDemand] = []
    unserved: list[UnservedJob] = []
    for job in sorted(pending, key=lambda j: (-j.priority, j.submitted, j.id)):
        why = _unserved_reason(job, up, headroom, now)
        parts = _parts(job)
        need, named = parts[0] if parts else per_node(job), _layouts(job.features, layouts)
        if not why.sentence and not need and not named:
            why = Message("it requests no GPU type, so any free GPU suits it")
        copies = 0 if why.sentence else _startable_tasks(job, headroom)
        if copies:
            demand = _demand(job, need, named, copies, _reserved_nodes(job, reservations, now))
            demands.append(_spread(demand, job, parts[1]) if parts else demand)
            continue
        sentence = why.sentence or "as many tasks of its array run as may run at a time"
        unserved.append(UnservedJob(job.id, sentence, job.reason, job.user, why.next_step))
    return JobQueue(tuple(demands), tuple(sorted(unserved, key=lambda a: a.job)))


def _array_headroom(jobs: Sequence[SlurmJob]) -> dict[int, int]:
    """Return how many more tasks of each limited array (``--array=1-16%4``) may run."""
    headroom = {job.array_job: job.array_limit for job in jobs if job.array_limit}
    for job in jobs if headroom else ():
        if job.array_job in headroom and not job.pending and job.state != "COMPLETING":
            headroom[job.array_job] -= 1
    return headroom


def _startable_tasks(job: SlurmJob, headroom: dict[int, int]) -> int:
    """Return how many tasks of a job's record may start, and take them from the array's headroom."""
    tasks = max(0, min(job.array_tasks, headroom.get(job.array_job, job.array_tasks)))
    if job.array_job in headroom:
        headroom[job.array_job] -= tasks
    return tasks


def _unserved_reason(job: SlurmJob, up: set[str], headroom: Container[int], now: float) -> Message:
    """Return why no repartition helps this job, and the next command; an empty message if one can help."""
    if job.priority == 0:
        return Message(f"it is held ({job.reason or 'priority 0'})", f"scontrol release {job.id}")
    if job.eligible > now:
        return Message(f"its start time is in the future, in {job.eligible - now:.0f} s")
    if job.reservation:
        shown = shlex.join(["scontrol", "show", "reservation", job.reservation])
        return Message(f"it waits for the reservation {job.reservation}", shown)
    if job.partitions and not up & set(job.partitions):
        name = job.partitions[0]
        return Message(f"its partition {name} is not UP in Slurm", shlex.join(["scontrol", "show", "partition", name]))
    limited = job.array_job in headroom and reasons.reason_key(job.reason) == reasons.ARRAY_LIMIT
    if limited or reasons.waits_for_resources(job.reason):
        return Message("")
    return Message(f"Slurm keeps it for a reason that no layout changes: {job.reason}", f"scontrol show job {job.id}")


def _parts(job: SlurmJob) -> tuple[dict[str, int], int] | None:
    """Return the devices of one part and the number of parts of a job that Slurm may spread over nodes, or None.

    Such a job requests devices per task (``-n 16 --gpus-per-task``) or together (``--gpus=8``), and no fixed number of
    nodes. This is an approximation: how many tasks and nodes the parts may share (``--ntasks-per-node``, ``-N 1-4``) is
    left to Slurm, and each node needs the memory of the whole request per node.
    """
    if len(job.requested) != 1 or 0 < job.node_limit <= job.node_count:
        return None
    ((how, gres),) = job.requested
    number = {"task": job.tasks, "job": gres.count}.get(how, 1)
    if gres.name != "gpu" or not gres.type or number < 2:
        return None
    return {gres.type: gres.count if how == "task" else 1}, number


def _spread(demand: JobDemand, job: SlurmJob, parts: int) -> JobDemand:
    cpus = -(-job.cpus // parts)
    return msgspec.structs.replace(demand, nodes=1, copies=demand.copies * parts, cpus=cpus, spread=True)


def _reserved_nodes(job: SlurmJob, reservations: Sequence[SlurmReservation], now: float) -> frozenset[str]:
    """Return the nodes that a reservation keeps from a job.

    A reservation that begins after the job's time limit does not matter; a job without one never ends for Slurm. A
    reservation of some cores of a node counts as one of the node.
    """
    end = now + job.time_limit_s if job.time_limit_s else float("inf")
    return frozenset(name for r in reservations if r.start < end and r.end > now for name in r.nodes)


def _demand(
    job: SlurmJob, need: dict[str, int], named: tuple[str, ...], copies: int, reserved: frozenset[str]
) -> JobDemand:
    return JobDemand(
        job=job.id,
        need=need,
        nodes=max(1, job.node_count),
        copies=copies,
        priority=job.priority,
        submitted=job.submitted,
        eligible=job.eligible,
        partitions=job.partitions,
        features=_plain(job.features, named),
        layouts=named,
        required=frozenset(job.required_nodes),
        excluded=frozenset(job.excluded_nodes),
        reserved=reserved,
        cpus=-(-job.cpus // max(1, job.node_count)),
        memory_mib=job.memory_mib,
        user=job.user,
        reason=job.reason,
        time_limit_s=job.time_limit_s,
        follows=reasons.reason_key(job.reason) == reasons.PRIORITY,
    )


def per_node(job: SlurmJob) -> dict[str, int]:
    """Return the devices by type that a job needs on each of its nodes.

    Requests can be per node, job, task or socket.

    A request per socket counts for one socket, because Slurm does not report how many sockets the job wants.
    """
    nodes = max(1, job.node_count)
    need: Counter[str] = Counter()
    for how, gres in job.requested:
        if gres.name != "gpu" or not gres.type:
            continue
        count = gres.count
        if how == "job":
            count = -(-gres.count // nodes)
        elif how == "task":
            count = gres.count * -(-max(1, job.tasks) // nodes)
        # The same request in two ways (--gpus and --gpus-per-task) is one demand, not two.
        need[gres.type] = max(need[gres.type], count)
    return {kind: n for kind, n in sorted(need.items()) if n}


def _layouts(expression: str, layouts: Mapping[str, object]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for word in _WORDS.findall(expression) if word in layouts))


def _plain(expression: str, named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the features that every node must have; none if the expression has alternatives."""
    if re.search(r"[|\[(*]", expression):
        return ()
    return tuple(word for word in _WORDS.findall(expression) if word not in named)
