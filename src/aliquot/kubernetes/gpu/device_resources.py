"""What a device plugin offers to the kubelet: NVIDIA's resource names, with MIG devices and their device nodes.

- ``none``: every GPU is ``nvidia.com/gpu``, in MIG mode or not.
- ``single``: MIG devices are ``nvidia.com/gpu``. As with NVIDIA's plugin, an empty MIG GPU, MIG mode on some GPUs only
  and devices that differ take the whole node's resources away: a pod that asks for ``nvidia.com/gpu`` under this
  strategy relies on every one being alike. What is wrong is said in a sentence.
- ``mixed``: ``nvidia.com/gpu`` for GPUs without MIG mode, ``nvidia.com/mig-<profile>`` for MIG devices (``+`` written
  ``.``), also of compute instance profiles (``nvidia.com/mig-1c.3g.20gb``: NVIDIA's plugin fails as a whole on them).
  Each name and each device stands for itself: one that cannot be offered takes no other away.

A GPU that containers cannot have (lost, passed through, vGPUs) takes no other away under any strategy.
"""

from __future__ import annotations

import msgspec

from aliquot.core.config.settings import MigStrategy
from aliquot.core.model.facts import Facts, MigDevice
from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.gpu import label_names as text
from aliquot.kubernetes.gpu.container_gpus import ContainerGpu, single_strategy_error, size_mismatch, usable_gpus

PREFIX = "nvidia.com/"
WHOLE_GPU = PREFIX + "gpu"

_LAST_CONTROL_CAP = 2
"""``nvidia-cap1`` (mig/config) and ``nvidia-cap2`` (mig/monitor) open every instance: no pod gets them."""


class Delivery(msgspec.Struct, frozen=True):
    """A way of its own to hand a device over, instead of CDI or NVIDIA's runtime: the environment variable that lists
    the ids of a container's devices, separated by commas, and the device files with these permissions. ``common`` are
    files that each container with such a device needs beside the device's own.
    """

    variable: str
    common: tuple[str, ...] = ()
    permissions: str = "mrw"


class ResourceDevice(msgspec.Struct, frozen=True):
    """One thing that a container can have. ``id``: the UUID, GPU- or MIG-, or an address; ``gpu``: its PCI address;
    ``paths``: the nodes below /dev that open it, those of all GPUs (nvidiactl, nvidia-uvm) aside; ``index``: ``0`` or
    ``0:3``. ``delivery`` is None for what containers get as the node's settings say.
    """

    id: str
    gpu: str
    paths: tuple[str, ...]
    index: str
    numa: int | None
    healthy: bool = True
    delivery: Delivery | None = None


class DeviceResource(msgspec.Struct, frozen=True):
    name: str
    devices: tuple[ResourceDevice, ...]


class ResourceOffer(msgspec.Struct, frozen=True):
    """Resources by name; ``refusals`` are sentences about what is there and cannot be offered."""

    resources: tuple[DeviceResource, ...] = ()
    refusals: tuple[str, ...] = ()


Share = tuple[ContainerGpu, MigDevice | None]
"""A GPU, or a MIG device on it."""


def offer(
    inventory: Inventory, facts: Facts, strategy: MigStrategy, *, unhealthy: frozenset[str] = frozenset()
) -> ResourceOffer:
    """What this node offers now. ``unhealthy``: UUIDs; a GPU's stands for all MIG devices on it too."""
    named, refusals = _shares_by_name(inventory, facts, strategy)
    resources = []
    for name, shares in named.items():
        devices = []
        for share in shares:
            made = _device(*share, unhealthy)
            if isinstance(made, str):
                refusals.append(made)
            else:
                devices.append(made)
        resources.append(DeviceResource(name, tuple(devices)))
    return ResourceOffer(tuple(resources), tuple(refusals))


def resource_counts(inventory: Inventory, facts: Facts, strategy: MigStrategy) -> dict[str, int]:
    """How many of each resource, by name."""
    return {name: len(shares) for name, shares in _shares_by_name(inventory, facts, strategy)[0].items()}


def _shares_by_name(
    inventory: Inventory, facts: Facts, strategy: MigStrategy
) -> tuple[dict[str, list[Share]], list[str]]:
    gpus, left_out = usable_gpus(inventory, facts)
    refusals = list(left_out)
    if strategy == "none":
        return _without_empty({WHOLE_GPU: [(container_gpu, None) for container_gpu in gpus]}), refusals
    if strategy == "single":
        return _single(gpus, refusals), refusals
    return _mixed(gpus, refusals), refusals


def _without_empty(named: dict[str, list[Share]]) -> dict[str, list[Share]]:
    return {name: shares for name, shares in named.items() if shares}


def _single(gpus: tuple[ContainerGpu, ...], refusals: list[str]) -> dict[str, list[Share]]:
    error = single_strategy_error(gpus) or size_mismatch(gpus)
    if error is not None:
        refusals.append(f"nothing is offered under strategy single: {error}")
        return {}
    shares: list[Share] = []
    for container_gpu in gpus:
        shares += (
            [(container_gpu, device) for device in container_gpu.devices]
            if container_gpu.enabled
            else [(container_gpu, None)]
        )
    return _without_empty({WHOLE_GPU: shares})


def _mixed(gpus: tuple[ContainerGpu, ...], refusals: list[str]) -> dict[str, list[Share]]:
    named: dict[str, list[Share]] = {
        WHOLE_GPU: [(container_gpu, None) for container_gpu in gpus if not container_gpu.enabled]
    }
    for container_gpu in gpus:
        if container_gpu.enabled and not container_gpu.devices:
            refusals.append(f"{container_gpu} offers nothing: it has MIG mode on and no MIG device")
        for device in container_gpu.devices:
            name = f"mig-{text.profile_word(device.profile)}"
            if device.profile and text.is_name(name):
                named.setdefault(PREFIX + name, []).append((container_gpu, device))
            else:
                refusals.append(f"MIG device {device.uuid} is not offered: {name!r} is not a legal resource name")
    return (
        {WHOLE_GPU: named.pop(WHOLE_GPU)} | dict(sorted(named.items()))
        if named[WHOLE_GPU]
        else _without_empty(dict(sorted(named.items())))
    )


def _device(container_gpu: ContainerGpu, device: MigDevice | None, unhealthy: frozenset[str]) -> ResourceDevice | str:
    """A device, or a sentence that says why a container could not open it."""
    gpu = container_gpu.gpu
    if gpu.minor < 0:
        return f"{container_gpu} is not offered: it has no device node"
    paths = (f"/dev/nvidia{gpu.minor}",)
    if device is None:
        return ResourceDevice(
            gpu.uuid, gpu.pci, paths, str(gpu.index), container_gpu.facts.numa_node, gpu.uuid not in unhealthy
        )
    minors = _capabilities(container_gpu, device)
    if isinstance(minors, str):
        return f"MIG device {device.uuid} on {container_gpu} is not offered: {minors}"
    number = device.index if device.index >= 0 else container_gpu.devices.index(device)
    return ResourceDevice(
        id=device.uuid,
        gpu=gpu.pci,
        paths=paths + tuple(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors),
        index=f"{gpu.index}:{number}",
        numa=container_gpu.facts.numa_node,
        healthy=not {gpu.uuid, device.uuid} & unhealthy,
    )


def _capabilities(container_gpu: ContainerGpu, device: MigDevice) -> tuple[int, int] | str:
    """The capability minors of a GPU instance and a compute instance, or why there are none. Facts and inventory are
    two reads: an instance that only one of them has was made or destroyed in between.
    """
    instance = container_gpu.gpu.instance(device.instance)
    inside = instance.compute_instances if instance is not None else ()
    compute = next((c for c in inside if c.id == device.compute_instance), None)
    if instance is None or compute is None or compute.uuid not in ("", device.uuid):
        return "the GPU was divided anew while it was read"
    minors = (instance.capability_minor, compute.capability_minor)
    if min(minors) <= _LAST_CONTROL_CAP:
        return "its capability device nodes are not known"
    return minors
