"""Slot boards with jobs on their slots, as the controller sees them, for tests of its decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot.core.model import catalog
from aliquot.slurm.client.models import Gres, SlurmJob, SlurmNode
from aliquot.slurm.controller.decide import decide
from aliquot.slurm.controller.job_demand import JobDemand, JobQueue
from aliquot.slurm.controller.layout_gpus import profiles_by_type, searchable_gpus
from aliquot.slurm.controller.models import Repartition, SlurmDecision, SlurmNodeState, SlurmState
from aliquot.slurm.controller.remote_nodes import RemoteNodeFacts
from aliquot.slurm.controller.settings import BOARD_LIMITS, ManagedNode, Rules, SlurmControllerSettings
from aliquot.slurm.controller.slot_boards import board_state, coming, is_board, with_used
from laws.oracle import mig_nodes

FAMILY = catalog.family("a100-40gb")
SLOTS = 7
"""Slots of an A100."""
Placed = Sequence[tuple[str, int]]


def placed(text: str) -> Placed:
    """Parse ``3g.20gb@0,1g.5gb@4``."""
    return [(word.partition("@")[0], int(word.partition("@")[2])) for word in text.split(",") if word]


def board(
    *gpus: str, used: Iterable[int] = (), jobs: Sequence[SlurmJob] = (), name: str = "n1", **more: object
) -> SlurmNodeState:
    """Build a slot board of A100s. ``used`` are slots that jobs have, ``more`` replaces fields of the state.

    ``release=`` is Slurm's, ``cpus=`` the number of its CPUs.
    """
    made = [mig_nodes.gpu(FAMILY, placed(text), pci=f"0000:{n:02x}:00.0") for n, text in enumerate(gpus)]
    facts = RemoteNodeFacts(mig_nodes.node(*made), slots=True)
    types = {SLOTS * n + start: kind for n, text in enumerate(gpus) for kind, start in placed(text)}
    taken = set(used)
    counts = Counter(types.get(slot, "pad") for slot in range(SLOTS * len(gpus) + 1))
    in_use: dict[str, list[int]] = {}
    for slot in sorted(taken):
        in_use.setdefault(types.get(slot, "pad"), []).append(slot)
    node = SlurmNode(
        name=name,
        states=frozenset({"MIXED" if taken else "IDLE"}),
        gres=tuple(Gres("gpu", kind, n) for kind, n in sorted(counts.items())),
        gres_used=tuple(Gres("gpu", kind, len(found), tuple(found)) for kind, found in in_use.items()),
        partitions=("all",),
        cpus=int(str(more.pop("cpus", 64))),
        cpus_allocated=len(taken),
        memory_mib=500_000,
        version=str(more.pop("release", "24.11.5")),
    )
    assert is_board(node, facts)
    host = ManagedNode(name, rules=Rules(modes=True), limits=BOARD_LIMITS, slots=True)
    state = SlurmNodeState(host=host, node=node, jobs=len(taken), coming=coming(name, jobs, NOW))
    state = board_state(state, node, facts, jobs)
    inventory = with_used(facts, node).inventory
    state = msgspec.structs.replace(
        state,
        gpus=searchable_gpus(inventory, (), state.rules, "profile"),
        names=profiles_by_type(inventory, "profile"),
    )
    return msgspec.structs.replace(state, **more)


NOW = 100_000.0


def decided(states: Iterable[SlurmNodeState], *demands: JobDemand, **more: object) -> SlurmDecision:
    """Decide for demands, most important first by ``rank``. ``more`` are fields of the cluster's state."""
    states = tuple(states)
    settings = SlurmControllerSettings(tuple(each.host for each in states))
    queue = JobQueue(tuple(sorted(demands, key=lambda demand: demand.rank)))
    state = msgspec.structs.replace(SlurmState(states), **more)
    return decide(state, queue, settings, NOW)


def want(job: int, kind: str, copies: int = 1, count: int = 1, **more: object) -> JobDemand:
    demand = JobDemand(job, {kind: count}, copies=copies, partitions=("all",), reason="Resources")
    return msgspec.structs.replace(demand, **more)


def layout(repartition: Repartition) -> Mapping[int, list[str]]:
    """Return the new instances by GPU: ``{0: ["3g.20gb@0", "3g.20gb@4"]}``."""
    return {
        int(pci[5:7], 16): [f"{FAMILY.by_id[p].name}@{start}" for p, start in chosen or ()]
        for pci, chosen in sorted(repartition.placements.items())
    }
