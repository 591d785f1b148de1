"""Totals of a node for its row on the fleet page. They are computed once per observation."""

from __future__ import annotations

from collections import Counter

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.planner.fragmentation import Fragmentation, find_fragmentation
from aliquot.dashboard import formatting as words
from aliquot.dashboard.view_models import ObservedFleet, ObservedNode


class ProfileCount(msgspec.Struct, frozen=True):
    """Instances of a profile on some GPUs: ``held``, ``idle``, and how many more fit ``now``.

    ``repacked`` is how many more fit if idle instances moved. ``most`` is the maximum of empty GPUs.
    """

    held: int = 0
    idle: int = 0
    now: int = 0
    repacked: int = 0
    most: int = 0
    gpus: int = 0

    def __add__(self, other: ProfileCount) -> ProfileCount:
        return ProfileCount(
            self.held + other.held,
            self.idle + other.idle,
            self.now + other.now,
            self.repacked + other.repacked,
            self.most + other.most,
            self.gpus + other.gpus,
        )


class NodeSummary(msgspec.Struct, frozen=True):
    """Totals of a node. ``held`` and ``idle`` count GPU instances and vGPUs.

    ``free`` of ``slices`` memory slices are free, and ``stranded`` of them fit no instance.
    ``capable`` GPUs support MIG. ``fragmented`` GPUs have a hole, which moving idle instances closes on ``closable``
    ones.
    """

    name: str
    shown: str
    products: str = ""
    gpus: int = 0
    lost: int = 0
    held: int = 0
    idle: int = 0
    free: int = 0
    slices: int = 0
    capable: int = 0
    stranded: int = 0
    fragmented: int = 0
    closable: int = 0
    profiles: tuple[tuple[str, ProfileCount], ...] = ()


_cache: dict[str, tuple[ObservedNode, NodeSummary]] = {}
_MOST = 16384


def summarize(view: ObservedNode) -> NodeSummary:
    """Return the totals of a node, cached until its next observation."""
    found = _cache.get(view.name)
    if found is None or found[0] is not view:
        if len(_cache) >= _MOST:
            _cache.clear()
        found = _cache[view.name] = (view, _summarize(view))
    return found[1]


def _summarize(view: ObservedNode) -> NodeSummary:
    shown = words.clean(view.name) or "(no name)"
    inventory = view.inventory
    if inventory is None:
        return NodeSummary(view.name, shown)
    found = [(gpu, find_fragmentation(inventory, gpu)) for gpu in inventory.gpus]
    in_mig = [h for _, h in found if h]
    held_flags = [i.held for g in inventory.gpus for i in g.instances]
    held_flags += [v.held for g in inventory.gpus for v in own_vgpus(g)]
    profiles: dict[str, ProfileCount] = {}
    for gpu, fragmentation in found:
        if fragmentation:
            for name, count in _profiles(inventory, gpu, fragmentation):
                profiles[name] = profiles.get(name, ProfileCount()) + count
    return NodeSummary(
        name=view.name,
        shown=shown,
        products=products(inventory),
        gpus=len(inventory.gpus),
        lost=sum(g.lost for g in inventory.gpus),
        held=sum(held_flags),
        idle=len(held_flags) - sum(held_flags),
        free=sum(len(h.free) for h in in_mig),
        slices=sum(inventory.family(g).memory_slices for g, h in found if h),
        capable=sum(g.mig.capable for g in inventory.gpus),
        stranded=sum(len(h.stranded) for h in in_mig),
        fragmented=sum(is_fragmented(h) for h in in_mig),
        closable=sum(bool(h.lost) for h in in_mig),
        profiles=tuple(profiles.items()),
    )


def is_fragmented(fragmentation: Fragmentation) -> bool:
    """Report whether a GPU has free memory that is stranded or fragmented."""
    return bool(fragmentation.stranded or fragmentation.lost)


def own_vgpus(gpu: Gpu) -> tuple[Vgpu, ...]:
    """Return the vGPUs that are shares of the whole GPU, not of an instance."""
    return () if gpu.mig.enabled else gpu.vgpus


def products(inventory: Inventory) -> str:
    """Format the products of a node: ``8 x H100 80GB HBM3, A2``."""
    counts = Counter(words.product(g) for g in inventory.gpus)
    return ", ".join(f"{n} x {name}" if n > 1 else name for name, n in counts.items()) or "no GPU"


def _profiles(inventory: Inventory, gpu: Gpu, fragmentation: Fragmentation) -> list[tuple[str, ProfileCount]]:
    held = Counter(i.profile_id for i in gpu.instances if i.held)
    idle = Counter(i.profile_id for i in gpu.instances if not i.held)
    family = inventory.family(gpu)
    return [
        (r.profile, ProfileCount(held[i], idle[i], r.now, r.repacked, family.by_id[i].max_instances, 1))
        for r in fragmentation.capacities
        for i in (r.profile_id,)
    ]


def capacity(fleet: ObservedFleet) -> tuple[tuple[str, ProfileCount], ...]:
    """Sum up each profile over the fleet.

    Profiles of which more would fit if idle instances moved come first. Otherwise the smallest comes first.
    """
    total: dict[str, ProfileCount] = {}
    for view in fleet.nodes:
        for name, count in summarize(view).profiles:
            total[name] = total[name] + count if name in total else count
    return tuple(sorted(total.items(), key=lambda item: (item[1].repacked <= item[1].now, _size(item[0]))))


def _size(name: str) -> tuple[int, int, str]:
    """Return compute slices, gigabytes and name of a profile, parsed from its name."""
    head, _, tail = name.partition("g.")
    gigabytes = tail.partition("gb")[0]
    return int(head) if head.isdigit() else 99, int(gigabytes) if gigabytes.isdigit() else 0, name
