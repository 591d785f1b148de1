"""The figures about one node's GPUs, from the last look at them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.fragmentation import find_fragmentation
from aliquot.metrics import instance_samples as instances
from aliquot.metrics.dcgm_labels import confidence, device, labels
from aliquot.metrics.instruments import MetricFamilies
from aliquot.metrics.snapshot import NodeSnapshot


class GpuCollector(Collector):
    """``snapshots`` tells the last look at each node that the page is about."""

    def __init__(self, snapshots: Callable[[], Iterable[NodeSnapshot]]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        out = MetricFamilies()
        for snapshot in self._snapshots():
            add_node(snapshot, out)
        yield from out.all()


def add_node(snapshot: NodeSnapshot, out: MetricFamilies) -> None:
    """All figures of one look."""
    node = (snapshot.node,)
    out.add("aliquot_look_success", node, snapshot.inventory is not None)
    if snapshot.details.at:
        out.add("aliquot_last_look_timestamp_seconds", node, snapshot.details.at)
    if snapshot.details.unhealthy is not None:
        out.add("aliquot_unhealthy_devices", node, snapshot.details.unhealthy)
    for rule, count in sorted(Counter(snapshot.details.blocked).items()):
        out.add("aliquot_wish_blocked", (snapshot.node, rule), count)
    if snapshot.inventory is None:
        return
    out.add("aliquot_gpus", node, len(snapshot.inventory.gpus))
    _drift(snapshot, out)
    for gpu in snapshot.inventory.gpus:
        _gpu(snapshot, snapshot.inventory, gpu, out)


def _drift(snapshot: NodeSnapshot, out: MetricFamilies) -> None:
    """Kinds that there are not are not told: an alert on one ends when its figure does."""
    if snapshot.requested:
        for kind, count in sorted((Counter(d.kind for d in snapshot.drift) or {"none": 0}).items()):
            out.add("aliquot_drift", (snapshot.node, kind), count)


def _gpu(snapshot: NodeSnapshot, inventory: Inventory, gpu: Gpu, out: MetricFamilies) -> None:
    label_values = labels(snapshot.node, gpu)
    sure = confidence(inventory, gpu)
    out.add("aliquot_gpu_info", (*label_values, device(gpu), gpu.product, inventory.driver, gpu.family or "", sure))
    out.add("aliquot_gpu_lost", label_values, gpu.lost)
    out.add("aliquot_gpu_passthrough", label_values, gpu.passthrough)
    if gpu.pci in snapshot.requested:
        out.add("aliquot_gpu_drift", label_values, sum(d.gpu == gpu.pci for d in snapshot.drift))
    _virtual(label_values, gpu, out)
    if gpu.mig.capable and not gpu.lost:
        out.add("aliquot_gpu_mig_enabled", label_values, gpu.mig.enabled)
        out.add("aliquot_gpu_mig_pending", label_values, gpu.mig.pending != gpu.mig.current)
        _capacity(snapshot, inventory, gpu, out)
    instances.add_gpu(snapshot, gpu, out)


def _capacity(snapshot: NodeSnapshot, inventory: Inventory, gpu: Gpu, out: MetricFamilies) -> None:
    """Free slices, holes, and what fits."""
    found = find_fragmentation(inventory, gpu, snapshot.wanted or None)
    if found is None:
        return
    label_values = labels(snapshot.node, gpu)
    out.add("aliquot_gpu_memory_slices", label_values, inventory.family(gpu).memory_slices)
    out.add("aliquot_gpu_free_memory_slices", label_values, len(found.free))
    out.add("aliquot_gpu_stranded_memory_slices", label_values, len(found.stranded))
    for capacity in found.capacities:
        out.add("aliquot_gpu_profile_fits", (*label_values, capacity.profile, "now"), capacity.now)
        out.add("aliquot_gpu_profile_fits", (*label_values, capacity.profile, "repacked"), capacity.repacked)


def _virtual(label_values: tuple[str, ...], gpu: Gpu, out: MetricFamilies) -> None:
    """What is shared with virtual machines."""
    if gpu.virtual is not None and gpu.virtual.total:
        out.add("aliquot_virtual_functions", label_values, len(gpu.virtual.functions))
        out.add("aliquot_virtual_functions_limit", label_values, gpu.virtual.total)
    held = Counter((v.type, v.held) for v in gpu.vgpus)
    for kind in sorted({v.type for v in gpu.vgpus}):
        out.add("aliquot_vgpus", (*label_values, kind, "held"), held[kind, True])
        out.add("aliquot_vgpus", (*label_values, kind, "idle"), held[kind, False])
