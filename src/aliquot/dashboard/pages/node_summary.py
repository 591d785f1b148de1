"""A node in a few figures: what its row on the fleet's page says. Made once per look."""

from __future__ import annotations

from collections import Counter

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.planner.fragmentation import Fragmentation, find_fragmentation
from aliquot.dashboard import formatting as words
from aliquot.dashboard.view_models import ObservedFleet, ObservedNode


class ProfileCount(msgspec.Struct, frozen=True):
    """One profile over some GPUs: instances that are ``held`` and ``idle``, how many more could be made ``now``, and if
    idle instances moved (``repacked``), and the ``most`` that these GPUs could hold if they held nothing else.
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
    """``held`` and ``idle`` count GPU instances and vGPUs. ``free`` of ``slices`` memory slices are free, ``stranded``
    of them fit nothing. ``capable`` GPUs could be in MIG mode. ``fragmented`` GPUs have a hole; of ``closable`` ones
    moving idle instances would close one.
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
    """Remembered until the node has another look."""
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
    """Whether there is free memory on a GPU that could be of more use."""
    return bool(fragmentation.stranded or fragmentation.lost)


def own_vgpus(gpu: Gpu) -> tuple[Vgpu, ...]:
    """The vGPUs that are shares of the GPU itself, not of an instance."""
    return () if gpu.mig.enabled else gpu.vgpus


def products(inventory: Inventory) -> str:
    """``8 x H100 80GB HBM3, A2``."""
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
    """Each profile over the whole fleet: first those of which more would fit if idle instances moved, the smallest
    first.
    """
    total: dict[str, ProfileCount] = {}
    for view in fleet.nodes:
        for name, count in summarize(view).profiles:
            total[name] = total[name] + count if name in total else count
    return tuple(sorted(total.items(), key=lambda item: (item[1].repacked <= item[1].now, _size(item[0]))))


def _size(name: str) -> tuple[int, int, str]:
    """Compute slices, gigabytes and name of a profile, as far as its name says."""
    head, _, tail = name.partition("g.")
    gigabytes = tail.partition("gb")[0]
    return int(head) if head.isdigit() else 99, int(gigabytes) if gigabytes.isdigit() else 0, name
