"""Names of devices in a CDI document.

    uuid        GPU-..., MIG-...            as NVML, nvidia-smi and Kubernetes name devices
    index       0, 0:1                      GPU, and MIG device of it, in NVML's order; as nvidia-ctk
    type-index  gpu0, mig0:1                the same with a prefix; as nvidia-ctk
    place       0000:07:00.0-3g.20gb-4      PCI address, profile, first memory slice; 0000:07:00.0 for a whole GPU

On old drivers a UUID ends with its instance, and an index changes when a lower one goes away. A place is stable: an
instance that is created there again has the same name, and another profile there has another name. A container that
names the place then fails to start instead of running on a different device. A compute instance that does not fill its
GPU instance has its own first compute slice at the end, ``0000:07:00.0-1c.3g.20gb-4-2``. CDI does not allow ``+``, so
``1g.10gb+me`` becomes ``1g.10gb.me``, as in Kubernetes resource names.
"""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance


def mig_devices(gpu: Gpu) -> Iterator[tuple[int, GpuInstance, ComputeInstance]]:
    """Yield the MIG devices of a GPU with their index, in NVML's order: by GPU instance id and compute instance id."""
    index = 0
    for instance in sorted(gpu.instances, key=lambda i: i.id):
        for compute in sorted(instance.compute_instances, key=lambda c: c.id):
            yield index, instance, compute
            index += 1


def gpu_names(gpu: Gpu, strategies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of a whole GPU. ``strategies`` are any of uuid, index, type-index and place."""
    words = {"uuid": gpu.uuid, "index": f"{gpu.index}", "type-index": f"gpu{gpu.index}", "place": gpu.pci}
    return tuple(dict.fromkeys(words[s] for s in strategies if words[s]))


def mig_names(
    gpu: Gpu, index: int, instance: GpuInstance, compute: ComputeInstance, strategies: tuple[str, ...]
) -> tuple[str, ...]:
    """Return the names of a MIG device. A device whose UUID is unknown has no UUID name."""
    words = {
        "uuid": compute.uuid,
        "index": f"{gpu.index}:{index}",
        "type-index": f"mig{gpu.index}:{index}",
        "place": stable_name(gpu, instance, compute),
    }
    return tuple(dict.fromkeys(words[s] for s in strategies if words[s]))


def stable_name(gpu: Gpu, instance: GpuInstance, compute: ComputeInstance) -> str:
    """Return the stable name of a MIG device."""
    start = instance.place.start
    if compute.profile == instance.profile:
        return sanitized(f"{gpu.pci}-{instance.profile}-{start}")
    return sanitized(f"{gpu.pci}-{compute.profile}-{start}-{compute.place.start}")


def sanitized(name: str) -> str:
    """Return a name that has only characters which CDI allows."""
    return name.replace("+", ".")
