"""What Slurm says of its nodes, jobs and partitions, as values: the same for every version and every way to ask."""

from __future__ import annotations

import msgspec

INVALID = "INVALID_REG"
"""Slurm 22.05 says ``INVAL`` for it in text: a node that registered with fewer GRES than are configured."""


class Gres(msgspec.Struct, frozen=True, order=True):
    """One entry of a GRES list: ``gpu:a100_3g.20gb:2``. ``index`` are the ordinals in the node's list that a job has,
    or that are in use, where Slurm says them (``(IDX:0-1)``).
    """

    name: str
    type: str = ""
    count: int = 1
    index: tuple[int, ...] = ()

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
        """Without the last number: 22.05."""
        return f"{self.major}.{self.minor:02}"


class SlurmNode(msgspec.Struct, frozen=True):
    """A node record. ``states`` are the base state and its flags in capitals (IDLE, DRAIN, DYNAMIC_NORM, CLOUD, FUTURE,
    INVALID_REG, NOT_RESPONDING, POWERED_DOWN, COMPLETING ...), with text's ``*``, ``~`` and ``INVAL`` spelled out.
    Memory is MiB. ``port`` is 0 where text leaves it out: it is the cluster's SlurmdPort. ``slurmd_start`` is in
    seconds of the epoch, 0 where none ever registered. ``last_busy`` is when a job last left the node (one that was
    suspended left it, too) or the node was resumed, in seconds of the epoch, 0 where Slurm does not say.
    """

    name: str
    states: frozenset[str]
    hostname: str = ""
    address: str = ""
    port: int = 0
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
    last_busy: int = 0
    weight: int = 0

    @property
    def dynamic(self) -> bool:
        """Registered by ``slurmd -Z``: it may be deleted and registered anew with other GRES."""
        return "DYNAMIC_NORM" in self.states

    @property
    def draining(self) -> bool:
        """No new job starts on it."""
        return bool(self.states & {"DRAIN", "DRAINED", "DRAINING"})

    @property
    def invalid(self) -> bool:
        """It registered with less than is configured."""
        return INVALID in self.states

    @property
    def answers(self) -> bool:
        """A slurmd is registered and well."""
        return not self.states & {"DOWN", "UNKNOWN", "FUTURE", "NOT_RESPONDING", "POWERED_DOWN", INVALID}

    def count(self, kind: str) -> int:
        """How many gpu GRES of a type are configured."""
        return sum(g.count for g in self.gres if g.name == "gpu" and g.type == kind)


class SlurmJob(msgspec.Struct, frozen=True):
    """A job that is pending or has resources. ``requested`` are the gpu GRES by how they were asked for: ``node``,
    ``job``, ``task``, ``socket``. ``features`` is the constraint as typed (``mig_2x3g&ib``). ``allocated`` are the GRES
    that it has, by node; ``nodes`` and ``allocated`` are in the order of names. Memory is MiB per node, 0 where not
    said. Times are seconds of the epoch.
    """

    id: int
    state: str
    user: str = ""
    name: str = ""
    reason: str = ""
    partitions: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    requested: tuple[tuple[str, Gres], ...] = ()
    allocated: tuple[tuple[str, Gres], ...] = ()
    features: str = ""
    node_count: int = 1
    tasks: int = 1
    cpus: int = 1
    memory_mib: int = 0
    priority: int = 0
    submitted: int = 0
    eligible: int = 0
    required_nodes: tuple[str, ...] = ()
    excluded_nodes: tuple[str, ...] = ()
    reservation: str = ""
    exclusive: bool = False
    requeue: bool = True

    @property
    def pending(self) -> bool:
        return self.state == "PENDING"


class SlurmReservation(msgspec.Struct, frozen=True):
    """A reservation that has begun, or is to begin. ``nodes`` are the names of now."""

    name: str
    nodes: tuple[str, ...] = ()


class SlurmPartition(msgspec.Struct, frozen=True):
    """A partition. ``spec`` is its ``Nodes=`` as configured (names, ALL, node sets), ``nodes`` the names of now."""

    name: str
    nodes: tuple[str, ...] = ()
    spec: str = ""
    up: bool = True
