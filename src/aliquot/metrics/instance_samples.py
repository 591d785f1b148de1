"""The figures about GPU instances, and about what is used of them."""

from __future__ import annotations

from collections import Counter

from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.model.usage import Usage
from aliquot.metrics.dcgm_labels import device, labels
from aliquot.metrics.instruments import Families
from aliquot.metrics.snapshot import Look

MIB = 1024 * 1024


def add(look: Look, gpu: Gpu, out: Families) -> None:
    """Those of one GPU. A GPU outside MIG mode has its memory told instead."""
    who = labels(look.node, gpu)
    counts = Counter((i.profile, i.held) for i in gpu.instances)
    for profile in sorted({i.profile for i in gpu.instances}):
        out.add("aliquot_instances", (*who, profile, "held"), counts[profile, True])
        out.add("aliquot_instances", (*who, profile, "idle"), counts[profile, False])
    used = {u.instance: u for u in look.seen.usage if u.gpu == gpu.pci}
    for instance in gpu.instances:
        _instance((*who, str(instance.id), instance.profile), gpu, instance, out)
        use = used.get(instance.id)
        if use is not None and use.profile in ("", instance.profile):  # else of one before that had this id
            _used((*who, str(instance.id), instance.profile), use, out)
    if None in used and not gpu.mig.enabled:
        _memory("aliquot_gpu_memory_used_bytes", who, used[None].memory_used_mib, out)
        _memory("aliquot_gpu_memory_size_bytes", who, used[None].memory_total_mib, out)
    for pci, instance_id, smaller in look.seen.smaller:
        found = gpu.instance(instance_id) if pci == gpu.pci else None
        if found is not None:
            out.add("aliquot_instance_smaller_profile_info", (*who, str(found.id), found.profile, smaller))


def _instance(who: tuple[str, ...], gpu: Gpu, instance: GpuInstance, out: Families) -> None:
    inner = instance.compute_instances
    uuid = inner[0].uuid if len(inner) == 1 else ""
    out.add("aliquot_instance_info", (*who, device(gpu), gpu.product, instance.placement, uuid))
    out.add("aliquot_instance_held", who, instance.held)


def _used(who: tuple[str, ...], usage: Usage, out: Families) -> None:
    """What nobody measured is left out: a 0 would be a lie."""
    _memory("aliquot_instance_memory_used_bytes", who, usage.memory_used_mib, out)
    _memory("aliquot_instance_memory_size_bytes", who, usage.memory_total_mib, out)
    _memory("aliquot_instance_memory_peak_bytes", who, usage.peak_mib, out)
    if usage.compute is not None:
        out.add("aliquot_instance_compute_utilization_ratio", who, usage.compute)
    if usage.idle_since is not None:
        out.add("aliquot_instance_idle_since_timestamp_seconds", who, usage.idle_since)


def _memory(name: str, who: tuple[str, ...], mib: int | None, out: Families) -> None:
    if mib is not None:
        out.add(name, who, mib * MIB)
