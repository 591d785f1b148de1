"""The controller's observations and decisions, as frozen values."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from aliquot.core.planner.node_layout import LayoutGpu, PlacedGeometry
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.controller.job_demand import JobQueue
from aliquot.slurm.controller.settings import ManagedNode, Rules
from aliquot.slurm.files.slot_board import PAD

MARK = "aliquot: "
"""The beginning of every reason that Aliquot sets."""
WAITING = f"{MARK}its jobs may end, then its GPUs are cut for job "
"""The beginning of the reason of a node that this controller drained so that its jobs end."""
JobState = Literal["covered", "cut", "drained", "waits", "alone", "stuck"]


class SlurmNodeState(msgspec.Struct, frozen=True):
    """A node and its GPUs."""

    host: ManagedNode
    node: SlurmNode | None = None
    """None while Slurm has no node with that name."""
    gpus: tuple[LayoutGpu, ...] = ()
    names: dict[str, str] = {}
    """The profile of each GRES type."""
    shut: str = ""
    """Why nothing can be changed here; "" if it can."""
    changing: bool = False
    """True while a change is in progress, so that Slurm's counts are about to change."""
    jobs: int = 0
    """The number of jobs with resources on the node."""
    idle_since: float = 0.0
    """When the node was first observed without jobs."""
    last_change: float = 0.0
    recent: int = 0
    """The number of its changes in the last hour."""
    failure: str = ""
    """The last failure; the next try is not before ``retry_at``."""
    retry_at: float = 0.0
    board: bool = False
    """True if the node is a slot board: its idle slots change beside running jobs, whose devices are held."""
    coming: dict[str, int] = {}
    """The devices by type whose jobs end in some seconds, sooner than a change would make others."""
    ends: dict[tuple[str, int], float] = {}
    """When the job of an instance ends at the latest, by its GPU and first slot there; missing if unknown."""

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def free(self) -> Counter[str]:
        """The devices by type that a job could get now."""
        node = self.node
        if node is None or node.draining or self.shut or self.in_maintenance:
            return Counter()
        if not node.answers:
            return Counter()
        counts = Counter({g.type: 0 for g in node.gres if g.name == "gpu"})
        for gres in node.gres:
            if gres.name == "gpu" and gres.type != PAD:
                counts[gres.type] += gres.count
        for gres in node.gres_used:
            if gres.name == "gpu" and gres.type != PAD:
                counts[gres.type] -= gres.count
        return +counts

    @property
    def rules(self) -> Rules:
        """The rules for its layouts now. A change of MIG mode needs the whole node, so it waits for a board's jobs."""
        beside_jobs = self.board and self.jobs > 0
        return msgspec.structs.replace(self.host.rules, modes=False) if beside_jobs else self.host.rules

    @property
    def in_maintenance(self) -> bool:
        """True if a reservation keeps jobs from the node, which may be ours during a change."""
        return self.node is not None and bool(self.node.states & {"MAINT", "MAINTENANCE"})

    @property
    def waiting(self) -> bool:
        """True if this controller drained the node so that its jobs end."""
        return self.node is not None and self.node.draining and self.node.reason.startswith(WAITING)


class SlurmState(msgspec.Struct, frozen=True):
    """The state of the cluster at one moment."""

    node_states: tuple[SlurmNodeState, ...]
    promised: dict[int, float] = {}
    """Since when free devices have suited a job."""
    stuck: dict[int, float] = {}
    """When a job was found that did not start although devices suited it."""
    recent: int = 0
    """The number of changes in the whole cluster in the last hour."""
    active_changes: int = 0
    """The number of changes in progress."""
    causes: tuple[tuple[str, str], ...] = ()
    """The node and the user of each change in the last hour."""
    partitioning: dict[int, tuple[str, ...]] = {}
    """The nodes that are being repartitioned for each job."""


class Repartition(msgspec.Struct, frozen=True):
    """A node to repartition."""

    node_name: str = msgspec.field(name="record")
    placements: dict[str, PlacedGeometry] = msgspec.field(name="cards")
    """The GPUs to change, by PCI address; all GPUs if only Slurm's record has to change."""
    jobs: tuple[int, ...]
    offered: dict[str, int] = {}
    destroyed: int = 0
    created: int = 0
    features: tuple[str, ...] | None = None
    """The node's new features; None leaves them unchanged."""
    user: str = ""
    """The user of the first job."""
    copies: dict[int, int] = {}
    """How many times it serves each job: the number of tasks of an array."""

    @property
    def jobs_text(self) -> str:
        """The jobs that it serves: ``job 17 (16 tasks), job 18``."""
        counts = {job: self.copies.get(job, 1) for job in self.jobs}
        return ", ".join(f"job {job} ({n} tasks)" if n > 1 else f"job {job}" for job, n in counts.items())


class JobVerdict(msgspec.Struct, frozen=True):
    """The decision about a job."""

    job: int
    state: JobState
    sentence: str
    node_names: tuple[str, ...] = msgspec.field(default=(), name="records")
    why: tuple[str, ...] = ()
    """One line for each node that could not be repartitioned for it."""
    next_step: str = msgspec.field(default="", name="next")
    """The command that helps the job, or shows more; "" if the controller acts."""

    @property
    def state_text(self) -> str:
        """The state in texts for people."""
        return {"cut": "repartitioning", "alone": "left to Slurm"}.get(self.state, self.state)


class NodeDrain(msgspec.Struct, frozen=True):
    """A busy node to drain for a job that has waited long."""

    node_name: str = msgspec.field(name="record")
    job: int

    @property
    def reason(self) -> str:
        return f"{WAITING}{self.job}"


class SlurmDecision(msgspec.Struct, frozen=True):
    """The actions of a round, and the verdicts on jobs."""

    repartitions: tuple[Repartition, ...] = ()
    drains: tuple[NodeDrain, ...] = ()
    resume: tuple[str, ...] = ()
    """Nodes that were drained for a job that no longer needs them."""
    covered: tuple[int, ...] = ()
    """Jobs that free devices suit."""
    verdicts: tuple[JobVerdict, ...] = ()


class SlurmObservation(msgspec.Struct, frozen=True):
    """The observed state of the cluster and its queue."""

    state: SlurmState
    queue: JobQueue
    nodes: tuple[SlurmNode, ...]
    now: float
    running: frozenset[int] = frozenset()
    """Jobs that have resources."""
