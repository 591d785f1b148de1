"""Resources that a device plugin offers to the kubelet: NVIDIA's names, with MIG devices and their device nodes.

- ``none``: each GPU is an ``nvidia.com/gpu``, in MIG mode or not.
- ``single``: each MIG device is an ``nvidia.com/gpu``. Pods that request it rely on all devices being alike. So the
  node offers no resources if a GPU in MIG mode is empty, if only some GPUs are in MIG mode, or if the devices differ.
  NVIDIA's plugin does the same. A sentence names the reason.
- ``mixed``: ``nvidia.com/gpu`` for GPUs without MIG mode, ``nvidia.com/mig-<profile>`` for MIG devices, with ``.`` for
  ``+``. This includes profiles of compute instances such as ``nvidia.com/mig-1c.3g.20gb``, on which NVIDIA's plugin
  fails completely. A device that cannot be offered does not affect the others.

A GPU that containers cannot use (lost, passed through, vGPUs) does not affect the others under any strategy.
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
"""``nvidia-cap1`` (mig/config) and ``nvidia-cap2`` (mig/monitor) give access to every instance: no pod gets them."""


class Delivery(msgspec.Struct, frozen=True):
    """Delivery of a device through an environment variable and device files, instead of CDI or NVIDIA's runtime."""

    variable: str
    """Environment variable with the ids of a container's devices, separated by commas."""
    common: tuple[str, ...] = ()
    """Files that each container with such a device needs in addition to those of the device."""
    permissions: str = "mrw"
    """Permissions of the device files."""
    value: str = ""
    """The device in the variable; "" for its id."""
    owner: int | None = None
    """The user and group that must own the device's files before a container gets them; None if any may."""


class ResourceDevice(msgspec.Struct, frozen=True):
    """A device that a container can have."""

    id: str
    """UUID (``GPU-`` or ``MIG-``) or address."""
    gpu: str
    """PCI address of the GPU."""
    paths: tuple[str, ...]
    """Device nodes below /dev, without those of all GPUs (nvidiactl, nvidia-uvm)."""
    index: str
    """``0`` for a GPU, ``0:3`` for a MIG device."""
    numa: int | None
    healthy: bool = True
    delivery: Delivery | None = None
    """None for the delivery in the node's settings."""


class DeviceResource(msgspec.Struct, frozen=True):
    name: str
    devices: tuple[ResourceDevice, ...]


class ResourceOffer(msgspec.Struct, frozen=True):
    """The resources that a node offers."""

    resources: tuple[DeviceResource, ...] = ()
    refusals: tuple[str, ...] = ()
    """A sentence for each device that cannot be offered."""


Share = tuple[ContainerGpu, MigDevice | None]
"""A GPU, or a MIG device on it."""


def offer(
    inventory: Inventory, facts: Facts, strategy: MigStrategy, *, unhealthy: frozenset[str] = frozenset()
) -> ResourceOffer:
    """Return the resources that the node offers. ``unhealthy`` are UUIDs; a GPU's includes its MIG devices."""
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
    """Return the number of devices by resource name."""
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
        refusals.append(f"strategy single offers nothing on this node: {error}")
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
            refusals.append(f"{container_gpu} offers nothing: MIG mode is enabled, but it has no MIG device")
        for device in container_gpu.devices:
            name = f"mig-{text.profile_word(device.profile)}"
            if device.profile and text.is_name(name):
                named.setdefault(PREFIX + name, []).append((container_gpu, device))
            else:
                refusals.append(f"MIG device {device.uuid} is not offered: {name!r} is not a valid resource name")
    return (
        {WHOLE_GPU: named.pop(WHOLE_GPU)} | dict(sorted(named.items()))
        if named[WHOLE_GPU]
        else _without_empty(dict(sorted(named.items())))
    )


def _device(container_gpu: ContainerGpu, device: MigDevice | None, unhealthy: frozenset[str]) -> ResourceDevice | str:
    """Return a device, or a sentence with the reason why a container could not open it."""
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
    """Return the capability minors of the GPU instance and the compute instance, or the reason why there are none.

    Facts and inventory are read one after the other: an instance in only one of them was created or destroyed in
    between.
    """
    instance = container_gpu.gpu.instance(device.instance)
    inside = instance.compute_instances if instance is not None else ()
    compute = next((c for c in inside if c.id == device.compute_instance), None)
    if instance is None or compute is None or compute.uuid not in ("", device.uuid):
        return "the GPU was repartitioned while it was read"
    minors = (instance.capability_minor, compute.capability_minor)
    if min(minors) <= _LAST_CONTROL_CAP:
        return "its capability device nodes are unknown"
    return minors
