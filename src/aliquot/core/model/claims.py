"""Claims: devices that are in use although no process runs on them now.

A container, a Slurm job, or a pod between two CUDA contexts can own such a device. NVML sees only processes. A runtime
or scheduler knows the claim, and a claimed instance counts as held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from aliquot.core.model.inventory import Gpu, GpuInstance, Holder, Inventory


class Claim(msgspec.Struct, frozen=True):
    """A holder and its devices by UUID: MIG devices, vGPUs, or whole GPUs including all their instances.

    A GPU without a known UUID has its PCI address.
    """

    holder: Holder
    devices: tuple[str, ...]


Claims = Callable[[Sequence[Gpu]], Sequence[Claim]]
"""Read the current claims on these GPUs. Each call reads again."""
HolderSource = Callable[[str], Claims]
"""A runtime or scheduler that allocates devices. The argument is the folder of the simulated node, or "" on real
hardware.
"""


def with_claims(inventory: Inventory, claims: Iterable[Claim]) -> Inventory:
    """Return the inventory with every claimed instance and whole GPU marked as held."""
    by_device = _by_device(claims)
    if not by_device:
        return inventory
    return msgspec.structs.replace(inventory, gpus=tuple(_gpu(gpu, by_device) for gpu in inventory.gpus))


def gpu_with_claims(gpu: Gpu, claims: Iterable[Claim]) -> Gpu:
    """Return a GPU with every claimed instance marked as held."""
    by_device = _by_device(claims)
    return _gpu(gpu, by_device) if by_device else gpu


def without_holders(gpu: Gpu) -> Gpu:
    """Return the GPU as it is after all holders have left."""
    replace = msgspec.structs.replace
    instances = tuple(
        replace(i, held=False, holders=(), compute_instances=tuple(replace(c, holders=()) for c in i.compute_instances))
        for i in gpu.instances
    )
    functions = tuple(replace(f, holders=()) for f in gpu.virtual.functions) if gpu.virtual else ()
    virtual = replace(gpu.virtual, functions=functions) if gpu.virtual else None
    vgpus = tuple(replace(v, holders=()) for v in gpu.vgpus)
    return replace(gpu, holders=(), instances=instances, vgpus=vgpus, virtual=virtual)


def _by_device(claims: Iterable[Claim]) -> dict[str, list[Holder]]:
    found: dict[str, list[Holder]] = {}
    for claim in claims:
        for device in claim.devices:
            found.setdefault(device, []).append(claim.holder)
    return found


def _gpu(gpu: Gpu, by_device: Mapping[str, Sequence[Holder]]) -> Gpu:
    on_all = by_device.get(gpu.identity, ())
    instances = tuple(_instance(i, by_device, on_all) for i in gpu.instances)
    vgpus = tuple(msgspec.structs.replace(v, holders=_joined(v.holders, by_device.get(v.uuid, ()))) for v in gpu.vgpus)
    return msgspec.structs.replace(gpu, instances=instances, vgpus=vgpus, holders=_joined(gpu.holders, on_all))


def _instance(
    instance: GpuInstance, by_device: Mapping[str, Sequence[Holder]], on_all: Sequence[Holder]
) -> GpuInstance:
    compute = tuple(
        msgspec.structs.replace(c, holders=_joined(c.holders, by_device.get(c.uuid, ())))
        for c in instance.compute_instances
    )
    added = [*on_all, *(h for c in compute for h in by_device.get(c.uuid, ()))]
    if not added:
        return instance
    holders = _joined(instance.holders, added)
    return msgspec.structs.replace(instance, compute_instances=compute, held=True, holders=holders)


def _joined(first: Sequence[Holder], second: Sequence[Holder]) -> tuple[Holder, ...]:
    return tuple(dict.fromkeys((*first, *second)))
