"""Room for jobs that have waited long: nodes to drain, and GPUs of slot boards that get no other jobs. Pure.

Slurm does not know that pads may become instances, so it keeps no slot for a large job behind small ones. The
controller does: on kept GPUs it creates nothing for others, and destroys what jobs leave there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Sequence

import msgspec

from aliquot.core.planner.node_layout import Bounds, LayoutGpu, NodeLayoutSearch, PlacedGeometry
from aliquot.core.planner.placement_table import PlacedInstance
from aliquot.slurm.client.models import Gres
from aliquot.slurm.controller.models import SlurmNodeState
from aliquot.slurm.controller.slot_boards import SOON_S
from aliquot.slurm.files.slot_board import PAD

Need = dict[str, int]


class KeptGpus(msgspec.Struct, frozen=True):
    """GPUs of a slot board that are kept for a job until it fits there."""

    node_name: str
    job: int
    gpus: tuple[str, ...]
    """PCI addresses."""
    ready_at: float
    """When it fits at the latest, by the time limits of the jobs there; infinite if one has none."""


def takes_drain(node_state: SlurmNodeState) -> bool:
    """Report whether a busy node may be drained for a job. A slot board never has to be."""
    node = node_state.node
    if node is None or node_state.board or node_state.host.rules.untouched or node_state.shut:
        return False
    return node.answers and bool(node_state.jobs) and (not node.draining or node_state.waiting)


def serves_empty(node_state: SlurmNodeState, needs: Sequence[Need], bounds: Bounds) -> bool:
    """Report whether a node could serve one of the needs after all its jobs have ended."""
    empty = [msgspec.structs.replace(gpu, fixed=frozenset(), locked=False) for gpu in node_state.gpus]
    return bool(empty) and any(_fits(empty, need, bounds) for need in needs)


def kept_gpus(node_state: SlurmNodeState, job: int, need: Need, bounds: Bounds, now: float) -> KeptGpus | None:
    """Return the GPUs of a board that have room for a need the earliest, as few as possible.

    None if none ever have, or if they have it now: then the job waits for something else.
    """
    gpus = [gpu for gpu in node_state.gpus if not gpu.locked and gpu.placed is not None]
    ends = {gpu.pci: [_end(node_state, gpu, each) for each in gpu.fixed] for gpu in gpus}
    times = sorted({now, *(end for each in ends.values() for end in each)})

    def at(when: float, used: Sequence[LayoutGpu]) -> bool:
        return _fits([_after(node_state, gpu, when) for gpu in used], need, bounds)

    found = bisect_left(times, True, key=lambda when: at(when, gpus))
    if found == len(times) or at(now, gpus):
        return None
    kept, order = list(gpus), sorted(gpus, key=lambda gpu: (-max(ends[gpu.pci], default=now), gpu.pci))
    for gpu in order:
        rest = [each for each in kept if each is not gpu]
        if rest and at(times[found], rest):
            kept = rest
    return KeptGpus(node_state.name, job, tuple(gpu.pci for gpu in kept), times[found])


def without_kept(node_state: SlurmNodeState, pcis: Collection[str], now: float) -> SlurmNodeState:
    """Return the state of a board as other jobs may use it: the kept GPUs are locked, and offer nothing."""
    gpus, gone, soon = [], Counter[str](), Counter[str]()
    for gpu in node_state.gpus:
        if gpu.pci in pcis:
            kinds = {profile: kind for kind, profile in gpu.kinds.items()}
            gone.update(kinds[each[0]] for each in idle_instances(gpu) if each[0] in kinds)
            ending = [each for each in gpu.fixed if now <= _end(node_state, gpu, each) <= now + SOON_S]
            soon.update(kinds[each[0]] for each in ending if each[0] in kinds)
            gpu = msgspec.structs.replace(gpu, placed=tuple(sorted(gpu.fixed)), locked=True)
        gpus.append(gpu)
    node = node_state.node
    if node is not None:
        node = msgspec.structs.replace(node, gres=tuple(_less(each, gone) for each in node.gres))
    coming = dict(Counter(node_state.coming) - soon)
    return msgspec.structs.replace(node_state, node=node, gpus=tuple(gpus), coming=coming)


def cleared(node_state: SlurmNodeState, pcis: Collection[str], keep: Collection[str]) -> dict[str, PlacedGeometry]:
    """Return the kept GPUs without their idle instances, those that have any; types of ``keep`` stay."""
    found: dict[str, PlacedGeometry] = {}
    for gpu in node_state.gpus:
        stays = {gpu.kinds[kind] for kind in keep if kind in gpu.kinds}
        gone = {each for each in idle_instances(gpu) if each[0] not in stays}
        if gpu.pci in pcis and gone:
            found[gpu.pci] = tuple(each for each in gpu.placed or () if each not in gone)
    return found


def idle_instances(gpu: LayoutGpu) -> list[PlacedInstance]:
    """Return the instances of a GPU that no job has."""
    return [each for each in gpu.placed or () if each not in gpu.fixed]


def _end(node_state: SlurmNodeState, gpu: LayoutGpu, instance: PlacedInstance) -> float:
    return node_state.ends.get((gpu.pci, instance[1]), float("inf"))


def _after(node_state: SlurmNodeState, gpu: LayoutGpu, when: float) -> LayoutGpu:
    """Return a GPU with only what jobs still have when those that end until then have ended."""
    fixed = frozenset(each for each in gpu.fixed if _end(node_state, gpu, each) > when)
    return msgspec.structs.replace(gpu, fixed=fixed, placed=tuple(sorted(fixed)))


def _fits(gpus: Sequence[LayoutGpu], need: Need, bounds: Bounds) -> bool:
    return all(NodeLayoutSearch(gpus, bounds, need).find([need]).met)


def _less(gres: Gres, gone: Counter[str]) -> Gres:
    """Return a node's record with the idle devices of kept GPUs as pads."""
    if gres.name != "gpu":
        return gres
    change = gone.total() if gres.type == PAD else -gone[gres.type]
    return msgspec.structs.replace(gres, count=gres.count + change)
