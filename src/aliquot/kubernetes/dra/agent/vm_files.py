"""The files through which VMs open the devices of claims, read from the kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.errors import BlockedError
from aliquot.kubernetes.dra.agent.device_targets import DeviceTarget, VmTarget
from aliquot.kubernetes.dra.agent.prepare_ports import ChangeableGpus

if TYPE_CHECKING:
    from aliquot.node.connect import Connection

PCI_DEVICES = "/sys/bus/pci/devices"
CONTAINER, IOMMUFD = "/dev/vfio/vfio", "/dev/iommu"
"""What a VM opens besides its devices: for IOMMU groups, and for devices themselves where the kernel has them."""


class NoVfioFileError(BlockedError):
    """The kernel has no file through which a VM could open the device of a claim."""

    code = "NO_VFIO_FILE"


async def read_files(
    targets: Iterable[DeviceTarget], inventory: Inventory, hardware: ChangeableGpus
) -> dict[str, tuple[str, ...]]:
    """Return the files of all devices for VMs by UUID, without devices that have none."""
    wanted = _folders(targets, inventory)

    def read(connection: Connection) -> dict[str, tuple[str, ...]]:
        from aliquot.hardware.kernel.vendor_vfio import vfio_devices

        files = connection.backend.kernel.files
        found = {uuid: vfio_devices(files, folder) for uuid, folder in wanted.items()}
        common = (CONTAINER, IOMMUFD) if files.exists(IOMMUFD) else (CONTAINER,)
        return {uuid: (*common, *opened) for uuid, opened in found.items() if opened}

    return await hardware.call(read) if wanted else {}


def find_unopened(
    targets: Iterable[DeviceTarget], inventory: Inventory, files: Mapping[str, Sequence[str]]
) -> NoVfioFileError | None:
    """Return the refusal if a device of these exists, and has no file; None if all have one."""
    folder = next((each for uuid, each in _folders(targets, inventory).items() if not files.get(uuid)), None)
    if folder is None:
        return None
    place = f"{PCI_DEVICES}/{folder}"
    return NoVfioFileError(
        f"{folder} has no VFIO file, so no VM can open it",
        details=(f"{place}/iommu_group and {place}/vfio-dev do not exist",),
        next_step=f"ls -l {place}/driver {place}/iommu_group {place}/vfio-dev; lsmod | grep vfio",
    )


def _folders(targets: Iterable[DeviceTarget], inventory: Inventory) -> dict[str, str]:
    """Return the folders of the devices for VMs that exist, by UUID."""
    wanted: dict[str, str] = {}
    for target in targets:
        gpu = next((each for each in inventory.gpus if each.pci == target.gpu.pci), None)
        if isinstance(target, VmTarget) and gpu is not None and target.uuid_in(gpu):
            wanted[target.uuid_in(gpu)] = _folder(target, gpu)
    return wanted


def _folder(target: VmTarget, gpu: Gpu) -> str:
    """Return the device's folder below that of PCI devices: an mdev is in the one of its function."""
    function = target.function_in(gpu)
    if function:
        return function
    parent = next(vgpu.function for vgpu in gpu.vgpus if vgpu.uuid == target.uuid)
    return f"{parent}/{target.uuid}"
