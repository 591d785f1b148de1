"""Nodes, jobs and partitions of Slurm, as values that are the same for every version and every client."""

from __future__ import annotations

import msgspec

INVALID = "INVALID_REG"
"""State of a node that registered with fewer GRES than are configured. Slurm 22.05 prints ``INVAL`` for it."""


class Gres(msgspec.Struct, frozen=True, order=True):
    """An entry of a GRES list: ``gpu:a100_3g.20gb:2``."""

    name: str
    type: str = ""
    count: int = 1
    index: tuple[int, ...] = ()
    """Ordinals in the node's list that a job has, or that are in use, if Slurm reports them (``(IDX:0-1)``)."""

    def __str__(self) -> str:
        return ":".join(filter(None, (self.name, self.type, str(self.count))))


class Version(msgspec.Struct, frozen=True, order=True):
    """A release of Slurm: 22.05.8."""

    major: int
    minor: int
    micro: int = 0

    def __str__(self) -> str:
        return f"{self.release}.{self.micro}"

    @property
    def release(self) -> str:
        """The release without its last number: 22.05."""
        return f"{self.major}.{self.minor:02}"


class SlurmNode(msgspec.Struct, frozen=True):
    """A node record of Slurm."""

    name: str
    states: frozenset[str]
    """The base state and its flags in capitals (IDLE, DRAIN, DYNAMIC_NORM, CLOUD, FUTURE, INVALID_REG, NOT_RESPONDING,
    POWERED_DOWN, COMPLETING ...). The ``*``, ``~`` and ``INVAL`` of text output are spelled out.
    """
    hostname: str = ""
    address: str = ""
    port: int = 0
    """0 if text output omits it: then it is the cluster's SlurmdPort."""
    reason: str = ""
    comment: str = ""
    extra: str = ""
    features: tuple[str, ...] = ()
    active_features: tuple[str, ...] = ()
    gres: tuple[Gres, ...] = ()
    gres_used: tuple[Gres, ...] = ()
    partitions: tuple[str, ...] = ()
    cpus: int = 0
    cpus_allocated: int = 0
    sockets: int = 0
    cores: int = 0
    threads: int = 0
    memory_mib: int = 0
    version: str = ""
    slurmd_start: int = 0
    """Seconds since the epoch; 0 if no slurmd ever registered."""
    last_busy: int = 0
    """When a job last left the node (being suspended counts) or the node was resumed, in seconds since the epoch; 0 if
    Slurm does not report it.
    """
    weight: int = 0

    @property
    def dynamic(self) -> bool:
        """True for a node that ``slurmd -Z`` registered: it may be deleted and registered again with other GRES."""
        return "DYNAMIC_NORM" in self.states

    @property
    def draining(self) -> bool:
        """True if no new job starts on the node."""
        return bool(self.states & {"DRAIN", "DRAINED", "DRAINING"})

    @property
    def invalid(self) -> bool:
        """True if the node registered with less than is configured."""
        return INVALID in self.states

    @property
    def answers(self) -> bool:
        """True if a slurmd is registered and responds."""
        return not self.states & {"DOWN", "UNKNOWN", "FUTURE", "NOT_RESPONDING", "POWERED_DOWN", INVALID}

    def count(self, kind: str) -> int:
        """Return how many gpu GRES of a type are configured."""
        return sum(g.count for g in self.gres if g.name == "gpu" and g.type == kind)


class SlurmJob(msgspec.Struct, frozen=True):
    """A job that is pending or has resources. Times are in seconds since the epoch."""

    id: int
    state: str
    user: str = ""
    name: str = ""
    reason: str = ""
    partitions: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    """In the order of names."""
    requested: tuple[tuple[str, Gres], ...] = ()
    """The gpu GRES, each with its unit: ``node``, ``job``, ``task`` or ``socket``."""
    allocated: tuple[tuple[str, Gres], ...] = ()
    """The GRES that the job has, each with its node, in the order of node names."""
    features: str = ""
    """The constraint as the user wrote it (``mig_2x3g&ib``)."""
    node_count: int = 1
    """The least number of nodes, as Slurm computed it last."""
    node_limit: int = 0
    """The most nodes; 0 if Slurm may take any number."""
    tasks: int = 1
    cpus: int = 1
    memory_mib: int = 0
    """Per node; 0 if Slurm does not report it."""
    priority: int = 0
    submitted: int = 0
    eligible: int = 0
    time_limit_s: int = 0
    """0 if it has none."""
    latest_end: int = 0
    """The time limit ends the job then; 0 if it has no limit or has not started."""
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    reservation: str = ""
    exclusive: bool = False
    requeue: bool = True
    array_job: int = 0
    """The number of its array; 0 for a job of none."""
    array_tasks: int = 1
    """The waiting tasks of an array that the record stands for, or 1."""
    array_limit: int = 0
    """How many tasks of the array may run at once (``%4``); 0 if that is not limited."""

    @property
    def pending(self) -> bool:
        return self.state == "PENDING"


class SlurmReservation(msgspec.Struct, frozen=True):
    """A reservation that is active or in the future."""

    name: str
    nodes: tuple[str, ...] = ()
    """The current node names."""
    flags: tuple[str, ...] = ()
    """In capitals: MAINT, IGNORE_JOBS, OVERLAP ..."""
    start: int = 0
    """In seconds since the epoch, as ``end``."""
    end: int = 0


class SlurmPartition(msgspec.Struct, frozen=True):
    """A partition of Slurm."""

    name: str
    nodes: tuple[str, ...] = ()
    """The current node names."""
    spec: str = ""
    """``Nodes=`` as configured: names, ALL, node sets."""
    up: bool = True
