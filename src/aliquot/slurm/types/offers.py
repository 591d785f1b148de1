"""Offers of a cluster to its jobs: each GRES type with its total, and what is free now, soon and on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from aliquot.slurm.client.models import SlurmJob, SlurmNode, SlurmPartition
from aliquot.slurm.gpus.gres_types import FILLER
from aliquot.slurm.gpus.type_facts import TypeFacts, facts_of_types
from aliquot.slurm.types.near import size_order
from aliquot.slurm.types.on_demand import DemandOffer

_NO_START = frozenset({"MAINTENANCE", "MAINT", "RESERVED", "REBOOT_REQUESTED", "REBOOT_ISSUED", "BLOCKED"})
"""States of a node that serves jobs, but where no other job starts now."""

SOON_S = 7 * 86400
"""Slurm gives a job without a time limit that backfill starts a limit of a year."""


class ClusterView(msgspec.Struct, frozen=True):
    """The state of a cluster, as the user who asked may see it."""

    nodes: tuple[SlurmNode, ...]
    jobs: tuple[SlurmJob, ...]
    partitions: tuple[SlurmPartition, ...]
    now: float
    """In seconds since the epoch."""


class Release(msgspec.Struct, frozen=True):
    """Devices that jobs give back at a time, in seconds since the epoch, or earlier."""

    at: int
    count: int


class PartitionOffer(msgspec.Struct, frozen=True):
    """A type in one partition. A node in two partitions counts in both."""

    name: str
    up: bool = True
    total: int = 0
    free: int = 0
    on_demand: int = 0
    """As in ``TypeOffer``."""


class TypeOffer(msgspec.Struct, frozen=True):
    """A type that jobs can request. Devices on nodes that are down or drained do not count."""

    type: str
    """"" for GPUs without a type."""
    total: int
    free: int
    """Devices on nodes where a job could start now: in a partition that is up, with an idle CPU."""
    soon: tuple[Release, ...]
    """Devices of jobs that their time limits end within ``SOON_S`` seconds, ascending."""
    later: int
    """Other devices in use: of longer jobs, of jobs without a time limit, and of jobs hidden from this user."""
    on_demand: int
    """Devices that one node can have when a job requests them; 0 if none can."""
    partitions: tuple[PartitionOffer, ...]
    """Those that are up first, then the one with the most free devices."""
    facts: TypeFacts

    @property
    def request(self) -> str:
        """The option of sbatch for one device: ``--gres=gpu:a100_3g.20gb:1``."""
        return f"--gres=gpu:{self.type}:1" if self.type else "--gres=gpu:1"

    @property
    def example(self) -> str:
        """A command line that submits a job for one device."""
        place = next((f"--partition={each.name} " for each in self.partitions if each.up), "")
        return f"sbatch {place}{self.request} job.sh"


class _Devices(msgspec.Struct, frozen=True):
    """The devices of one node by type, without the filler of a slot board."""

    node: SlurmNode
    serving: bool
    counts: Counter[str]
    used: Counter[str]
    free: Counter[str]


def offered_types(view: ClusterView, demand: Iterable[DemandOffer]) -> tuple[TypeOffer, ...]:
    """Return the types of nodes and of ``demand``: whole GPUs, then MIG devices from large to small."""
    on_demand = {each.type: each for each in demand}
    nodes = [_devices(node) for node in view.nodes if "FUTURE" not in node.states]
    kinds = {kind for each in nodes for kind in each.counts} | set(on_demand)
    facts = facts_of_types([*(each.counts for each in nodes), on_demand])
    return tuple(
        _offer(kind, [each for each in nodes if each.counts[kind]], view, on_demand.get(kind), facts[kind])
        for kind in sorted(kinds, key=size_order)
    )


def serves(node: SlurmNode) -> bool:
    """Report whether jobs can run on a node: it is in service, or power saving starts it."""
    off = {"CLOUD", "POWERED_DOWN"} <= node.states and "DOWN" not in node.states
    return not node.draining and (node.answers or off)


def _devices(node: SlurmNode) -> _Devices:
    counts = _by_type((g.type, g.count) for g in node.gres if g.name == "gpu" and g.type != FILLER)
    used = _by_type((g.type, g.count) for g in node.gres_used if g.name == "gpu")
    serving = serves(node)
    starts = serving and not node.states & _NO_START and not (node.cpus and node.cpus_allocated >= node.cpus)
    return _Devices(node, serving, counts, used, counts - used if starts else Counter())


def _by_type(pairs: Iterable[tuple[str, int]]) -> Counter[str]:
    found: Counter[str] = Counter()
    for kind, count in pairs:
        found[kind] += count
    return +found


def _offer(
    kind: str, having: list[_Devices], view: ClusterView, demand: DemandOffer | None, facts: TypeFacts
) -> TypeOffer:
    up = frozenset(partition.name for partition in view.partitions if partition.up)
    serving = [each for each in having if each.serving]
    soon = _soon(kind, frozenset(each.node.name for each in serving), view)
    used = sum(each.used[kind] for each in serving)
    return TypeOffer(
        type=kind,
        total=sum(each.counts[kind] for each in serving),
        free=sum(each.free[kind] for each in serving if up & set(each.node.partitions)),
        soon=soon,
        later=max(0, used - sum(each.count for each in soon)),
        on_demand=demand.count if demand else 0,
        partitions=_partitions(kind, having, up, demand),
        facts=facts,
    )


def _partitions(
    kind: str, having: list[_Devices], up: frozenset[str], demand: DemandOffer | None
) -> tuple[PartitionOffer, ...]:
    wanted = frozenset(demand.partitions if demand else ())
    total: Counter[str] = Counter()
    free: Counter[str] = Counter()
    for each in having:
        for name in each.node.partitions:
            total[name] += each.counts[kind] if each.serving else 0
            free[name] += each.free[kind]
    found = [
        PartitionOffer(
            name=name,
            up=name in up,
            total=total[name],
            free=free[name] if name in up else 0,
            on_demand=demand.count if demand and name in wanted else 0,
        )
        for name in set(total) | wanted
    ]
    return tuple(sorted(found, key=lambda each: (not each.up, -each.free, -each.total, -each.on_demand, each.name)))


def _soon(kind: str, names: frozenset[str], view: ClusterView) -> tuple[Release, ...]:
    ends: Counter[int] = Counter()
    for job in view.jobs:
        count = sum(g.count for name, g in job.allocated if name in names and g.name == "gpu" and g.type == kind)
        if count and 0 < job.latest_end <= view.now + SOON_S and not job.pending:
            ends[max(job.latest_end, int(view.now))] += count
    return tuple(Release(at, count) for at, count in sorted(ends.items()))
