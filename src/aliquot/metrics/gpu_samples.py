"""The figures about one node's GPUs, from the last look at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.fragmentation import holes
from aliquot.metrics import instance_samples as instances
from aliquot.metrics.dcgm_labels import confidence, device, labels
from aliquot.metrics.instruments import Families
from aliquot.metrics.snapshot import Look


class Gpus(Collector):
    """``looks`` tells the last look at each node that the page is about."""

    def __init__(self, looks: Callable[[], Iterable[Look]]) -> None:
        self._looks = looks

    def collect(self) -> Iterator[Metric]:
        out = Families()
        for look in self._looks():
            add(look, out)
        yield from out.all()


def add(look: Look, out: Families) -> None:
    """All figures of one look."""
    node = (look.node,)
    out.add("aliquot_look_success", node, look.inventory is not None)
    if look.seen.at:
        out.add("aliquot_last_look_timestamp_seconds", node, look.seen.at)
    if look.seen.unhealthy is not None:
        out.add("aliquot_unhealthy_devices", node, look.seen.unhealthy)
    for rule, count in sorted(Counter(look.seen.blocked).items()):
        out.add("aliquot_wish_blocked", (look.node, rule), count)
    if look.inventory is None:
        return
    out.add("aliquot_gpus", node, len(look.inventory.gpus))
    _drift(look, out)
    for gpu in look.inventory.gpus:
        _gpu(look, look.inventory, gpu, out)


def _drift(look: Look, out: Families) -> None:
    """Kinds that there are not are not told: an alert on one ends when its figure does."""
    if look.wished:
        for kind, count in sorted((Counter(d.kind for d in look.drift) or {"none": 0}).items()):
            out.add("aliquot_drift", (look.node, kind), count)


def _gpu(look: Look, inventory: Inventory, gpu: Gpu, out: Families) -> None:
    who = labels(look.node, gpu)
    sure = confidence(inventory, gpu)
    out.add("aliquot_gpu_info", (*who, device(gpu), gpu.product, inventory.driver, gpu.family or "", sure))
    out.add("aliquot_gpu_lost", who, gpu.lost)
    out.add("aliquot_gpu_passthrough", who, gpu.passthrough)
    if gpu.pci in look.wished:
        out.add("aliquot_gpu_drift", who, sum(d.gpu == gpu.pci for d in look.drift))
    _virtual(who, gpu, out)
    if gpu.mig.capable and not gpu.lost:
        out.add("aliquot_gpu_mig_enabled", who, gpu.mig.enabled)
        out.add("aliquot_gpu_mig_pending", who, gpu.mig.pending != gpu.mig.current)
        _room(look, inventory, gpu, out)
    instances.add(look, gpu, out)


def _room(look: Look, inventory: Inventory, gpu: Gpu, out: Families) -> None:
    """Free slices, holes, and what fits."""
    found = holes(inventory, gpu, look.wanted or None)
    if found is None:
        return
    who = labels(look.node, gpu)
    out.add("aliquot_gpu_memory_slices", who, inventory.family(gpu).memory_slices)
    out.add("aliquot_gpu_free_memory_slices", who, len(found.free))
    out.add("aliquot_gpu_stranded_memory_slices", who, len(found.stranded))
    for room in found.rooms:
        out.add("aliquot_gpu_profile_fits", (*who, room.profile, "now"), room.now)
        out.add("aliquot_gpu_profile_fits", (*who, room.profile, "repacked"), room.repacked)


def _virtual(who: tuple[str, ...], gpu: Gpu, out: Families) -> None:
    """What is shared with virtual machines."""
    if gpu.virtual is not None and gpu.virtual.total:
        out.add("aliquot_virtual_functions", who, len(gpu.virtual.functions))
        out.add("aliquot_virtual_functions_limit", who, gpu.virtual.total)
    held = Counter((v.type, v.held) for v in gpu.vgpus)
    for kind in sorted({v.type for v in gpu.vgpus}):
        out.add("aliquot_vgpus", (*who, kind, "held"), held[kind, True])
        out.add("aliquot_vgpus", (*who, kind, "idle"), held[kind, False])
