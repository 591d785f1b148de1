"""Slot boards as the controller sees them: the slots that jobs have now, and what may change beside them. Pure.

Slurm names the slots of each job (``gres_used``). That is current, while the answer of a node may be minutes old. So
the holders of a board come from Slurm alone. The node itself looks again before it changes anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import msgspec

from aliquot.core.model.claims import without_holders
from aliquot.core.model.inventory import Gpu, Holder
from aliquot.slurm.client.models import SlurmJob, SlurmNode
from aliquot.slurm.controller.job_demand import JobDemand
from aliquot.slurm.controller.models import SlurmNodeState
from aliquot.slurm.controller.remote_nodes import RemoteNodeFacts
from aliquot.slurm.files.slot_board import PAD, board_gpus, first_slots, slots

SOON_S = 10.0
"""A job whose time limit ends it within these seconds leaves its devices sooner than a change makes others."""
BATCH_S = 30.0
"""Seconds from one batch of changes to the next, in releases that restart slurmctld for each."""
RELOADS = "23.11"
"""The first release that reads new types without a restart of slurmctld."""
_A_JOB = Holder("job", "slurm")


def is_board(node: SlurmNode | None, facts: RemoteNodeFacts) -> bool:
    """Report whether a node is a slot board, and Slurm has it with all slots."""
    if node is None or not facts.slots:
        return False
    try:
        total = _total(facts)
    except KeyError:
        return False
    records = [gres for gres in node.gres if gres.name == "gpu"]
    return any(gres.type == PAD for gres in records) and sum(gres.count for gres in records) == total + 1


def used_slots(node: SlurmNode) -> frozenset[int] | None:
    """Return the slots that jobs have, or None if Slurm does not name all of them."""
    used = [gres for gres in node.gres_used if gres.name == "gpu" and gres.count]
    if any(len(gres.index) != gres.count for gres in used):
        return None
    return frozenset(slot for gres in used for slot in gres.index)


def board_state(
    node_state: SlurmNodeState, node: SlurmNode, facts: RemoteNodeFacts, jobs: Iterable[SlurmJob]
) -> SlurmNodeState:
    """Return the state of a node that is a board: what blocks all of its slots, and when its ``jobs`` end."""
    used = used_slots(node)
    shut = node_state.shut
    if used is None:
        shut = shut or "Slurm does not name the slots that its jobs have"
    elif _total(facts) in used:
        # Only a request without a type, or for the type pad, gets this record.
        shut = shut or "a job has the record of the unused capabilities, so nothing can change beside it"
    return msgspec.structs.replace(node_state, board=True, shut=shut, ends=_ends(node_state.name, facts, jobs))


def _ends(name: str, facts: RemoteNodeFacts, jobs: Iterable[SlurmJob]) -> dict[tuple[str, int], float]:
    """Return when the job of each slot ends at the latest. A job without a time limit has no end."""
    by_slot = {
        slot: float(job.latest_end)
        for job in jobs
        if job.latest_end
        for node_name, gres in job.allocated
        if node_name == name and gres.name == "gpu"
        for slot in gres.index
    }
    found = {}
    for pci, first in first_slots(facts.inventory, facts.gpus or None).items():
        for each in facts.inventory.gpu(pci).instances:
            starts = [each.place.start, *(each.place.start + inner.place.start for inner in each.compute_instances)]
            known = [by_slot[first + start] for start in starts if first + start in by_slot]
            if known:
                found[pci, each.place.start] = max(known)
    return found


def with_used(facts: RemoteNodeFacts, node: SlurmNode) -> RemoteNodeFacts:
    """Return the facts of a board with the instances of used slots held, and no other.

    A GPU that a job has as a whole, or a pad of it, is held itself: nothing of it may change.
    """
    inventory, taken = facts.inventory, used_slots(node)
    first = first_slots(inventory, facts.gpus or None)
    gpus = []
    for gpu in inventory.gpus:
        own = set(range(slots(inventory, gpu))) if gpu.pci in first else set()
        used = own if taken is None or not own else {slot - first[gpu.pci] for slot in taken} & own
        gpus.append(_with_used(gpu, used) if own else gpu)
    return msgspec.structs.replace(facts, inventory=msgspec.structs.replace(inventory, gpus=tuple(gpus)))


def _total(facts: RemoteNodeFacts) -> int:
    """Return the number of slots of a board: the index of the record after them."""
    return sum(slots(facts.inventory, gpu) for gpu in board_gpus(facts.inventory, facts.gpus or None))


def _with_used(gpu: Gpu, taken: set[int]) -> Gpu:
    instances = []
    for each in without_holders(gpu).instances:
        starts = {each.place.start + inner.place.start for inner in each.compute_instances}
        instances.append(msgspec.structs.replace(each, held=bool(starts & taken)))
        taken = taken - starts
    return msgspec.structs.replace(gpu, instances=tuple(instances), holders=(_A_JOB,) if taken else ())


def coming(name: str, jobs: Iterable[SlurmJob], now: float) -> dict[str, int]:
    """Return the devices of a node, by type, whose jobs end within ``SOON_S`` by their time limit."""
    found: Counter[str] = Counter()
    for job in jobs:
        if now <= job.latest_end <= now + SOON_S:
            for node_name, gres in job.allocated:
                if node_name == name and gres.name == "gpu" and gres.type != PAD:
                    found[gres.type] += gres.count
    return dict(sorted(found.items()))


def batch_blocker(node_states: Iterable[SlurmNodeState], now: float) -> str:
    """Return why no board changes now: its release restarts slurmctld for it, and did so a moment ago."""
    boards = [each for each in node_states if each.board and _restarts(each.node)]
    changing = next((each.name for each in boards if each.changing), "")
    if changing:
        return f"{changing} is being changed, for which slurmctld restarts"
    since = now - max((each.last_change for each in boards), default=float("-inf"))
    if since < BATCH_S:
        return f"slurmctld restarted {since:.0f} s ago for a change, at least {BATCH_S:.0f} s must pass"
    return ""


def _restarts(node: SlurmNode | None) -> bool:
    return node is not None and bool(node.version) and _release(node.version) < _release(RELOADS)


def _release(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def room(node_state: SlurmNodeState, demand: JobDemand, promised_cpus: int = 0) -> int:
    """Return how many copies of a job a node's free CPUs and its memory allow."""
    node = node_state.node
    if node is None:
        return 0
    in_use = node.cpus_allocated + promised_cpus if node_state.board else 0
    by_cpus = max(0, node.cpus - in_use) // max(1, demand.cpus)
    return min(by_cpus, node.memory_mib // demand.memory_mib) if demand.memory_mib else by_cpus
