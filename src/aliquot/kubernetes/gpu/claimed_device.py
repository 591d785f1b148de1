"""Devices that pods have through ResourceClaims, matched with the GPUs and MIG devices of the node.

A DRA driver chooses the names of its devices. A name is matched by the UUID in it, or, for ``gpu.nvidia.com``, by the
minor number of the GPU and the placement of the instance.

Source: NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/mig.go. Its names are ``gpu-0`` and
``gpu-0-mig-1g10gb-19-0`` (GPU, profile, profile id, first memory slice). Older releases use ``gpu-0-mig-19-0-1`` (GPU,
profile id, first memory slice, size).
"""

from __future__ import annotations

import re

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory

_NVIDIA = "nvidia.com"
_PLACEMENT_DRIVER = "gpu.nvidia.com"
_NO_GPUS = "compute-domain.nvidia.com"
"""The driver of IMEX channels and their daemons (NVIDIA/k8s-dra-driver-gpu), which are not GPUs."""
_PLACEMENT_NAME = re.compile(r"gpu-(\d+)(?:-mig-(?:\d+g[a-z0-9-]*?-\d+-(\d+)|\d+-(\d+)-\d+))?")


class ClaimedDevice(msgspec.Struct, frozen=True):
    """A device of a ResourceClaim as kubelet lists it."""

    claim: str
    """``namespace/name``."""
    driver: str
    pool: str = ""
    device: str = ""
    """Name of the device in its pool."""
    cdi: tuple[str, ...] = ()
    """Names of the CDI devices that the pods of the claim get."""

    def __str__(self) -> str:
        return f"claim {self.claim} of driver {self.driver}"


def device_uuids(claimed: ClaimedDevice, inventory: Inventory) -> tuple[str, ...]:
    """Return the UUIDs of a claimed device: the GPU's if only the GPU is known, none if no name identifies it."""
    return _by_uuid(claimed, inventory) or _by_placement(claimed, inventory)


def is_nvidia(claimed: ClaimedDevice) -> bool:
    """Report whether the device may be a GPU of the node, even if its name identifies none."""
    ours = claimed.driver == _NVIDIA or claimed.driver.endswith(f".{_NVIDIA}")
    return ours and claimed.driver != _NO_GPUS


def _by_uuid(claimed: ClaimedDevice, inventory: Inventory) -> tuple[str, ...]:
    names = "\n".join((claimed.device, *claimed.cdi)).lower()
    known = [c.uuid for gpu in inventory.gpus for i in gpu.instances for c in i.compute_instances]
    migs = tuple(uuid for uuid in known if uuid and uuid.lower() in names)
    return migs or tuple(gpu.uuid for gpu in inventory.gpus if gpu.uuid and gpu.uuid.lower() in names)


def _by_placement(claimed: ClaimedDevice, inventory: Inventory) -> tuple[str, ...]:
    found = _PLACEMENT_NAME.fullmatch(claimed.device) if claimed.driver == _PLACEMENT_DRIVER else None
    if found is None:
        return ()
    minor, *starts = found.groups()
    gpu = next((each for each in inventory.gpus if each.minor == int(minor)), None)
    start = next((int(each) for each in starts if each is not None), None)
    if gpu is None:
        return ()
    return (_mig_devices_at(gpu, start) if start is not None else ()) or (gpu.uuid,)


def _mig_devices_at(gpu: Gpu, start: int) -> tuple[str, ...]:
    """Return the UUIDs of the MIG devices of the GPU instance that starts at this memory slice."""
    return tuple(c.uuid for i in gpu.instances if i.place.start == start for c in i.compute_instances)
