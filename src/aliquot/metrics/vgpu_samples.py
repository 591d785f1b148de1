"""Metrics of the vGPUs that VMs run with, from the last sample of the driver."""

from __future__ import annotations

from collections.abc import Iterable

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.vgpu_usage import VgpuUsage, find_vgpu
from aliquot.metrics.instruments import MetricFamilies

_MIB = 1024 * 1024


def add_vgpus(
    gpu_labels: tuple[str, ...], usages: Iterable[VgpuUsage], inventory: Inventory, gpu: Gpu, out: MetricFamilies
) -> None:
    """Add the usage of each vGPU of a GPU, and whether its guest is licensed.

    Usage is sampled less often than GPUs are read: a type that the GPU has no longer has no metrics. Nor has a vGPU
    without UUIDs, whose VM ended during the sample: two of them would be one series.
    """
    present = {vgpu.type_id for vgpu in gpu.vgpus}
    for usage in usages:
        if usage.gpu == gpu.pci and usage.type_id in present and (usage.uuid or usage.vm):
            _add(gpu_labels, usage, inventory, gpu, out)


def _add(gpu_labels: tuple[str, ...], usage: VgpuUsage, inventory: Inventory, gpu: Gpu, out: MetricFamilies) -> None:
    """Add one vGPU. A value that the driver does not report has no sample, because 0 would be wrong."""
    table = inventory.vgpu_table(gpu)
    kind = table.by_id.get(usage.type_id) if table is not None else None
    found = find_vgpu(gpu, usage)
    name = next((v.type for v in gpu.vgpus if v.type_id == usage.type_id), "")
    label_values = (*gpu_labels, name, usage.uuid, found.function if found else "", usage.vm)
    values = {
        "compute_utilization_ratio": usage.compute,
        "memory_utilization_ratio": usage.memory_bandwidth,
        "encoder_utilization_ratio": usage.encoder,
        "decoder_utilization_ratio": usage.decoder,
        "memory_used_bytes": None if usage.memory_used_mib is None else usage.memory_used_mib * _MIB,
        "memory_size_bytes": None if kind is None else kind.fb_mib * _MIB,
        "licensed": usage.licensed,
        "license_expiry_timestamp_seconds": usage.license_expires,
    }
    for what, value in values.items():
        if value is not None:
            out.add(f"aliquot_vgpu_{what}", label_values, value)
