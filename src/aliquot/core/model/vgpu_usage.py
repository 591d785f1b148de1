"""Usage and license of the vGPUs that VMs run with, as the host's driver reports them."""

from __future__ import annotations

from typing import Literal

import msgspec

from aliquot.core.model.inventory import Gpu, Vgpu
from aliquot.core.model.stored import Stored

LicenseState = Literal[
    "", "uninitialized", "unlicensed-unrestricted", "unlicensed-restricted", "unlicensed", "licensed"
]
"""Empty if the driver does not know it.

``uninitialized`` until the guest's driver runs. ``unlicensed-unrestricted`` and ``unlicensed-restricted`` before and
after the driver reduces its performance.
"""


class VgpuUsage(msgspec.Struct, frozen=True):
    """The usage of a running vGPU. None means that the driver does not report a value."""

    gpu: str
    """PCI address of the physical GPU."""
    type_id: int
    uuid: str = ""
    """The driver's UUID of this vGPU, another one at each start of the VM."""
    mdev: str = ""
    """UUID of the mdev. Empty with vendor VFIO."""
    vm: str = ""
    """UUID of the VM."""
    compute: float | None = None
    """Share of the GPU's multiprocessors, 0 to 1."""
    memory_bandwidth: float | None = None
    """Share of time in which the GPU's memory was accessed for it, 0 to 1."""
    encoder: float | None = None
    decoder: float | None = None
    memory_used_mib: int | None = None
    license: Stored[LicenseState] = ""
    license_expires: float | None = None
    """Wall time in seconds. None without a license that expires."""

    @property
    def licensed(self) -> bool | None:
        """True if the guest has a license; None if that is unknown."""
        return self.license == "licensed" if self.license not in ("", "uninitialized") else None


def license_states(usages: tuple[VgpuUsage, ...], gpus: tuple[Gpu, ...]) -> tuple[VgpuUsage, ...]:
    """Return only what names each vGPU, and the state of its license, for a document in a cluster.

    Everything else changes with every sample. Types that a GPU has no longer are left out.
    """
    present = {(gpu.pci, vgpu.type_id) for gpu in gpus for vgpu in gpu.vgpus}
    return tuple(
        VgpuUsage(each.gpu, each.type_id, each.uuid, each.mdev, each.vm, license=each.license)
        for each in usages
        if (each.gpu, each.type_id) in present
    )


def find_vgpu(gpu: Gpu, usage: VgpuUsage) -> Vgpu | None:
    """Return the vGPU that a usage is of; None if it is not certain.

    The driver names the mdev. With vendor VFIO it names nothing of the host, so only a type of which one vGPU runs is
    certain.
    """
    if usage.mdev:
        return next((each for each in gpu.vgpus if each.uuid == usage.mdev), None)
    running = [each for each in gpu.vgpus if each.held and each.type_id == usage.type_id]
    return running[0] if len(running) == 1 else None
