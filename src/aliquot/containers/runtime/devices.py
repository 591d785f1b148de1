"""Devices of a node that a container can get. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.containers.runtime.models import ContainerDevice
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance, Holder, Inventory


def devices(inventory: Inventory, numbers: Mapping[str, int] | None = None) -> tuple[ContainerDevice, ...]:
    """Return every MIG device, and every GPU that is not in MIG mode. ``numbers`` are the driver's own indices of MIG
    devices by UUID. Without them, instances count in the order of their ids, as the driver does.

    Omitted are GPUs that fell off the bus, that are passed through to a VM, or whose vGPUs exist, and instances behind
    a vGPU.
    """
    return tuple(d for gpu in inventory.gpus for d in _of(gpu, numbers or {}))


def _of(gpu: Gpu, numbers: Mapping[str, int]) -> Iterator[ContainerDevice]:
    if gpu.lost or gpu.passthrough:
        return
    if not gpu.mig.enabled:
        if not gpu.vgpus:
            minors, holders = (gpu.minor,), gpu.holders
            yield ContainerDevice(gpu.uuid, gpu.index, -1, "", 0, gpu.pci, gpu.uuid, minors, holders)
        return
    behind = {vgpu.gpu_instance for vgpu in gpu.vgpus}
    count = 0
    for instance in sorted(gpu.instances, key=lambda i: i.id):
        for compute in sorted(instance.compute_instances, key=lambda c: c.id):
            if instance.id not in behind and compute.uuid:
                yield _mig(gpu, instance, compute, numbers.get(compute.uuid, count))
            count += 1


def _mig(gpu: Gpu, instance: GpuInstance, compute: ComputeInstance, number: int) -> ContainerDevice:
    return ContainerDevice(
        uuid=compute.uuid,
        gpu=gpu.index,
        number=number,
        profile=compute.profile,
        start=instance.place.start,
        pci=gpu.pci,
        gpu_uuid=gpu.uuid,
        minors=(gpu.minor, instance.capability_minor, compute.capability_minor),
        holders=_on(instance, compute),
        shared=len(instance.compute_instances) > 1,
    )


def _on(instance: GpuInstance, compute: ComputeInstance) -> tuple[Holder, ...]:
    """Return the holders of a compute instance: its own, and those of the GPU instance that no sibling accounts for."""
    siblings = {h for c in instance.compute_instances if c is not compute for h in c.holders}
    whole = tuple(h for h in instance.holders if h not in siblings)
    found = tuple(dict.fromkeys((*compute.holders, *whole)))
    if not found and instance.held and not siblings:
        return (Holder("process", "?", "the driver does not report which"),)
    return found
