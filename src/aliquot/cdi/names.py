"""Names of devices in a CDI document.

    uuid        GPU-..., MIG-...            what NVML, nvidia-smi and Kubernetes say
    index       0, 0:1                      GPU, and MIG device of it, in NVML's order; as nvidia-ctk
    type-index  gpu0, mig0:1                the same with a word before; as nvidia-ctk
    place       0000:07:00.0-3g.20gb-4      PCI address, profile, first memory slice; 0000:07:00.0 for a whole GPU

A UUID ends with its instance on old drivers and an index moves when a neighbour goes. A place holds: whatever is
created there again has the same name, and another profile there has another name, so that a container which names it
fails to start instead of running on something else. A compute instance that does not fill its GPU instance has its
own first slot at the end, ``0000:07:00.0-1c.3g.20gb-4-2``. CDI allows no ``+``: ``1g.10gb+me`` becomes ``1g.10gb.me``,
as in Kubernetes resource names.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance


def mig_devices(gpu: Gpu) -> Iterator[tuple[int, GpuInstance, ComputeInstance]]:
    """The MIG devices of a GPU with their index, in NVML's order: by GPU instance id, then compute instance id."""
    index = 0
    for instance in sorted(gpu.instances, key=lambda i: i.id):
        for compute in sorted(instance.compute_instances, key=lambda c: c.id):
            yield index, instance, compute
            index += 1


def gpu_names(gpu: Gpu, strategies: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a whole GPU. ``strategies``: of uuid, index, type-index and place."""
    words = {"uuid": gpu.uuid, "index": f"{gpu.index}", "type-index": f"gpu{gpu.index}", "place": gpu.pci}
    return tuple(dict.fromkeys(words[s] for s in strategies if words[s]))


def mig_names(
    gpu: Gpu, index: int, instance: GpuInstance, compute: ComputeInstance, strategies: tuple[str, ...]
) -> tuple[str, ...]:
    """The names of a MIG device. One whose UUID is not known has no UUID name."""
    words = {
        "uuid": compute.uuid,
        "index": f"{gpu.index}:{index}",
        "type-index": f"mig{gpu.index}:{index}",
        "place": stable_name(gpu, instance, compute),
    }
    return tuple(dict.fromkeys(words[s] for s in strategies if words[s]))


def stable_name(gpu: Gpu, instance: GpuInstance, compute: ComputeInstance) -> str:
    """The stable name of a MIG device."""
    start = instance.place.start
    if compute.profile == instance.profile:
        return sanitized(f"{gpu.pci}-{instance.profile}-{start}")
    return sanitized(f"{gpu.pci}-{compute.profile}-{start}-{compute.place.start}")


def sanitized(name: str) -> str:
    """A name with the characters that CDI allows."""
    return name.replace("+", ".")
