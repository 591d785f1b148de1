"""The figures about GPU instances, and about what is used of them."""

from __future__ import annotations

from collections import Counter

from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.model.usage import Usage
from aliquot.metrics.dcgm_labels import device, labels
from aliquot.metrics.instruments import MetricFamilies
from aliquot.metrics.snapshot import NodeSnapshot

MIB = 1024 * 1024


def add_gpu(snapshot: NodeSnapshot, gpu: Gpu, out: MetricFamilies) -> None:
    """Those of one GPU. A GPU outside MIG mode has its memory told instead."""
    label_values = labels(snapshot.node, gpu)
    counts = Counter((i.profile, i.held) for i in gpu.instances)
    for profile in sorted({i.profile for i in gpu.instances}):
        out.add("aliquot_instances", (*label_values, profile, "held"), counts[profile, True])
        out.add("aliquot_instances", (*label_values, profile, "idle"), counts[profile, False])
    used = {u.instance: u for u in snapshot.details.usage if u.gpu == gpu.pci}
    for instance in gpu.instances:
        _instance((*label_values, str(instance.id), instance.profile), gpu, instance, out)
        use = used.get(instance.id)
        if use is not None and use.profile in ("", instance.profile):  # else of one before that had this id
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
    """What nobody measured is left out: a 0 would be a lie."""
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
