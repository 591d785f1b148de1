"""What the controller sees of the cluster, and what it decides: frozen values."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from aliquot.core.planner.node_layout import LayoutGpu, PlacedGeometry
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.controller.job_demand import JobQueue
from aliquot.slurm.controller.settings import ManagedNode
from aliquot.slurm.controller.sibling_groups import SiblingGroup, SiblingSwap

MARK = "aliquot: "
"""How reasons that we set begin."""
WAITING = f"{MARK}its jobs may end, then its GPUs are cut for job "
"""How the reason of a record begins that this controller drained so that its jobs end."""
JobState = Literal["covered", "cut", "drained", "waits", "alone", "stuck"]


class SlurmNodeState(msgspec.Struct, frozen=True):
    """One record and its GPUs. ``node`` is None while Slurm has none of that name; ``names`` has the profile of each
    type. ``jobs`` is the number of jobs with resources on it, ``idle_since`` when it was first seen without any.
    ``recent`` counts its changes of the last hour. ``shut`` says why nothing can be done here; ``changing``: a change
    of it is under way, so that Slurm's counts of it are soon others. ``failure`` is what went wrong last, which is not
    tried again before ``retry_at``. ``cloud``: power saving starts it, so that one which is off has what it is said to
    have.
    """

    host: ManagedNode
    node: SlurmNode | None = None
    gpus: tuple[LayoutGpu, ...] = ()
    names: dict[str, str] = {}
    shut: str = ""
    changing: bool = False
    jobs: int = 0
    idle_since: float = 0.0
    last_change: float = 0.0
    recent: int = 0
    failure: str = ""
    retry_at: float = 0.0
    cloud: bool = False

    @property
    def name(self) -> str:
        return self.host.name

    @property
    def free(self) -> Counter[str]:
        """Devices by type that a job could have now."""
        node = self.node
        if node is None or node.draining or self.shut:
            return Counter()
        if not node.answers and (not self.cloud or "DOWN" in node.states):
            return Counter()
        counts = Counter({g.type: 0 for g in node.gres if g.name == "gpu"})
        for gres in node.gres:
            if gres.name == "gpu":
                counts[gres.type] += gres.count
        for gres in node.gres_used:
            if gres.name == "gpu":
                counts[gres.type] -= gres.count
        return +counts

    @property
    def waiting(self) -> bool:
        """Drained by this controller, so that its jobs end."""
        return self.node is not None and self.node.draining and self.node.reason.startswith(WAITING)


class SlurmState(msgspec.Struct, frozen=True):
    """The cluster at one moment. ``promised``: since when slices have been free that suit a job. ``recent`` changes of
    the last hour in the whole cluster, ``active_changes`` those that are being made; ``causes``: the record and the
    user of each of the last hour's; ``partitioning``: the records that are being cut for a job.
    """

    node_states: tuple[SlurmNodeState, ...]
    promised: dict[int, float] = {}
    stuck: dict[int, float] = {}
    recent: int = 0
    active_changes: int = 0
    groups: tuple[SiblingGroup, ...] = ()
    causes: tuple[tuple[str, str], ...] = ()
    partitioning: dict[int, tuple[str, ...]] = {}


class Repartition(msgspec.Struct, frozen=True):
    """A record to cut anew. ``placements`` are the GPUs to change; all of them where only Slurm has to be told.
    ``features`` replace the node's, None leaves them. ``user`` is that of the first job.
    """

    node_name: str = msgspec.field(name="record")
    placements: dict[str, PlacedGeometry] = msgspec.field(name="cards")
    jobs: tuple[int, ...]
    offered: dict[str, int] = {}
    destroyed: int = 0
    created: int = 0
    features: tuple[str, ...] | None = None
    user: str = ""


class JobVerdict(msgspec.Struct, frozen=True):
    """What becomes of a job, in a sentence. ``why`` has a line per record that could not be cut for it."""

    job: int
    state: JobState
    sentence: str
    node_names: tuple[str, ...] = msgspec.field(default=(), name="records")
    why: tuple[str, ...] = ()


class NodeDrain(msgspec.Struct, frozen=True):
    """A busy record that takes no new jobs, for one that has waited long."""

    node_name: str = msgspec.field(name="record")
    job: int

    @property
    def reason(self) -> str:
        return f"{WAITING}{self.job}"


class SlurmDecision(msgspec.Struct, frozen=True):
    """What to do now. ``swaps``: hosts of which another CLOUD record is to be open. ``resume``: records drained for a
    job that does not need them any more. ``covered``: jobs that free slices suit.
    """

    repartitions: tuple[Repartition, ...] = ()
    swaps: tuple[SiblingSwap, ...] = ()
    drains: tuple[NodeDrain, ...] = ()
    resume: tuple[str, ...] = ()
    covered: tuple[int, ...] = ()
    verdicts: tuple[JobVerdict, ...] = ()


class SlurmObservation(msgspec.Struct, frozen=True):
    """The cluster as it was found, before anything is decided. ``running`` are jobs that have resources."""

    state: SlurmState
    queue: JobQueue
    nodes: tuple[SlurmNode, ...]
    now: float
    running: frozenset[int] = frozenset()
