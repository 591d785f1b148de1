"""Metrics of one node's GPUs and instances, from the last observation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.model.usage import Usage
from aliquot.core.planner.fragmentation import find_fragmentation
from aliquot.metrics.instruments import MetricFamilies
from aliquot.metrics.snapshot import NodeSnapshot
from aliquot.metrics.vgpu_samples import add_vgpus

MIB = 1024 * 1024
_DOUBTS = ("unknown", "estimate", "inferred-open", "inferred-exact", "derived", "secondary", "partly-captured")
"""Values of confidence below a capture or NVIDIA's own tables, the least certain first."""


class GpuCollector(Collector):
    """Collector of GPU metrics. ``snapshots`` returns the last observation of each node on the page."""

    def __init__(self, snapshots: Callable[[], Iterable[NodeSnapshot]]) -> None:
        self._snapshots = snapshots

    def collect(self) -> Iterator[Metric]:
        out = MetricFamilies()
        for snapshot in self._snapshots():
            add_node(snapshot, out)
        yield from out.all()


def add_node(snapshot: NodeSnapshot, out: MetricFamilies) -> None:
    """Add all metrics of one observation."""
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
    """Add the drift by kind. Kinds without drift have no sample, so that an alert on one ends with its sample."""
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
    _instances(snapshot, gpu, out)
    add_vgpus(label_values, snapshot.details.vgpus, inventory, gpu, out)


def _capacity(snapshot: NodeSnapshot, inventory: Inventory, gpu: Gpu, out: MetricFamilies) -> None:
    """Add free and stranded slices, and how many more instances of each profile fit."""
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
    """Add virtual functions and vGPUs."""
    if gpu.virtual is not None and gpu.virtual.total:
        out.add("aliquot_virtual_functions", label_values, len(gpu.virtual.functions))
        out.add("aliquot_virtual_functions_limit", label_values, gpu.virtual.total)
    held = Counter((v.type, v.held) for v in gpu.vgpus)
    for kind in sorted({v.type for v in gpu.vgpus}):
        out.add("aliquot_vgpus", (*label_values, kind, "held"), held[kind, True])
        out.add("aliquot_vgpus", (*label_values, kind, "idle"), held[kind, False])


def _instances(snapshot: NodeSnapshot, gpu: Gpu, out: MetricFamilies) -> None:
    """Add the instances of one GPU, and their usage. A GPU outside MIG mode has its own memory usage instead."""
    label_values = labels(snapshot.node, gpu)
    counts = Counter((i.profile, i.held) for i in gpu.instances)
    for profile in sorted({i.profile for i in gpu.instances}):
        out.add("aliquot_instances", (*label_values, profile, "held"), counts[profile, True])
        out.add("aliquot_instances", (*label_values, profile, "idle"), counts[profile, False])
    used = {u.instance: u for u in snapshot.details.usage if u.gpu == gpu.pci}
    for instance in gpu.instances:
        _instance((*label_values, str(instance.id), instance.profile), gpu, instance, out)
        use = used.get(instance.id)
        if use is not None and use.profile in ("", instance.profile):  # else it is of a previous instance with this id
            _used((*label_values, str(instance.id), instance.profile), use, out)
    if None in used and not gpu.mig.enabled:
        _memory("aliquot_gpu_memory_used_bytes", label_values, used[None].memory_used_mib, out)
        _memory("aliquot_gpu_memory_size_bytes", label_values, used[None].memory_total_mib, out)
    for pci, instance_id, smaller in snapshot.details.smaller:
        found = gpu.instance(instance_id) if pci == gpu.pci else None
        if found is not None:
            out.add("aliquot_instance_smaller_profile_info", (*label_values, str(found.id), found.profile, smaller))


def _instance(label_values: tuple[str, ...], gpu: Gpu, instance: GpuInstance, out: MetricFamilies) -> None:
    inner = instance.compute_instances
    uuid = inner[0].uuid if len(inner) == 1 else ""
    out.add("aliquot_instance_info", (*label_values, device(gpu), gpu.product, instance.placement, uuid))
    out.add("aliquot_instance_held", label_values, instance.held)


def _used(label_values: tuple[str, ...], usage: Usage, out: MetricFamilies) -> None:
    """Add the usage of one instance. A value that was not measured has no sample, because 0 would be wrong."""
    _memory("aliquot_instance_memory_used_bytes", label_values, usage.memory_used_mib, out)
    _memory("aliquot_instance_memory_size_bytes", label_values, usage.memory_total_mib, out)
    _memory("aliquot_instance_memory_peak_bytes", label_values, usage.peak_mib, out)
    if usage.compute is not None:
        out.add("aliquot_instance_compute_utilization_ratio", label_values, usage.compute)
    if usage.idle_since is not None:
        out.add("aliquot_instance_idle_since_timestamp_seconds", label_values, usage.idle_since)


def _memory(name: str, label_values: tuple[str, ...], mib: int | None, out: MetricFamilies) -> None:
    if mib is not None:
        out.add(name, label_values, mib * MIB)


def labels(node: str, gpu: Gpu) -> tuple[str, str, str, str]:
    """Return the values of ``labels.GPU``: a GPU as dcgm-exporter names it."""
    return node, str(gpu.index) if gpu.index >= 0 else "", gpu.uuid, bus_id(gpu.pci)


def bus_id(pci: str) -> str:
    """Return ``00000000:0A:00.0`` for ``0000:0a:00.0``: NVML writes eight digits of domain, in capitals."""
    domain, _, rest = pci.upper().partition(":")
    return f"{domain:0>8}:{rest}"


def device(gpu: Gpu) -> str:
    """Return ``nvidia0``, or "" for a GPU without a device node."""
    return f"nvidia{gpu.minor}" if gpu.minor >= 0 else ""


def confidence(inventory: Inventory, gpu: Gpu) -> str:
    """Return the least certain confidence of the placements in the GPU's table; "" for a GPU without a table."""
    if gpu.family is None:
        return ""
    try:
        profiles = inventory.family(gpu).profiles
    except KeyError:
        return ""
    words = {p.confidence.get("placements", "captured") for p in profiles}
    return next((word for word in _DOUBTS if word in words), min(words, default=""))
