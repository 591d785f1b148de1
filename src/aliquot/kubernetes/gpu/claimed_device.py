"""A device that a pod has by a ResourceClaim: which GPU or MIG device of the node that is.

A driver names its devices as it likes. What a name can be matched by: the UUID in it, or, of ``gpu.nvidia.com``, the
GPU's minor number and the place of the instance. Source: NVIDIA/k8s-dra-driver-gpu, cmd/gpu-kubelet-plugin/mig.go:
``gpu-0``, ``gpu-0-mig-1g10gb-19-0`` (GPU, profile, id of the profile, first memory slice) and, in older releases,
``gpu-0-mig-19-0-1`` (GPU, id of the profile, first memory slice, size).
"""

from __future__ import annotations

import re

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory

_NVIDIA = "nvidia.com"
_PLACEMENT_DRIVER = "gpu.nvidia.com"
_NO_GPUS = "compute-domain.nvidia.com"
"""The driver of IMEX channels and their daemons (NVIDIA/k8s-dra-driver-gpu): they say nothing of a GPU."""
_PLACEMENT_NAME = re.compile(r"gpu-(\d+)(?:-mig-(?:[^-]*g[^-]*-\d+-(\d+)|\d+-(\d+)-\d+))?")


class ClaimedDevice(msgspec.Struct, frozen=True):
    """One device of a claim (``namespace/name``) as kubelet lists it: its driver, pool and name there, and the names of
    the CDI devices that its pods get.
    """

    claim: str
    driver: str
    pool: str = ""
    device: str = ""
    cdi: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"claim {self.claim} of driver {self.driver}"


def device_uuids(claimed: ClaimedDevice, inventory: Inventory) -> tuple[str, ...]:
    """The UUIDs of what is claimed, a whole GPU's where only the GPU is known; empty where no name says which it is."""
    return _by_uuid(claimed, inventory) or _by_placement(claimed, inventory)


def is_nvidia(claimed: ClaimedDevice) -> bool:
    """Whether the device may be a GPU of the node, whatever its name is."""
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
    """The MIG devices of the instance that begins there."""
    return tuple(c.uuid for i in gpu.instances if i.place.start == start for c in i.compute_instances)
