"""What a host device of a virtual machine is to the inventory: a vGPU, a virtual function, a whole GPU, or nothing of
ours. The place where libvirt's names (mdev UUIDs, PCI addresses) and ours meet.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu, VirtualFunction
from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.libvirt.models import MDEV, PCI, Hostdev, LibvirtDomain

VFIO_PCI = "vfio-pci"
_SLOTS = 64
"""More functions or slots than any GPU has, for finding whose stable UUID one is."""


class IdentifiedDevice(msgspec.Struct, frozen=True):
    """A host device and what it is. At most one of ``vgpu``, ``function`` and ``whole_gpu`` holds, and then ``gpu``
    says of which GPU; ``disabled`` is a virtual function that would be there if they were switched on.
    """

    hostdev: Hostdev
    gpu: Gpu | None = None
    vgpu: Vgpu | None = None
    function: VirtualFunction | None = None
    whole_gpu: bool = False
    disabled: bool = False

    @property
    def in_inventory(self) -> bool:
        return self.gpu is not None


def identify_device(inventory: Inventory, hostdev: Hostdev) -> IdentifiedDevice:
    """What a host device is here and now."""
    if hostdev.kind == MDEV:
        found = next(((g, v) for g, v in vgpus(inventory) if v.uuid == hostdev.uuid), None)
        return IdentifiedDevice(hostdev, gpu=found[0], vgpu=found[1]) if found else IdentifiedDevice(hostdev)
    for gpu in inventory.gpus:
        if gpu.pci == hostdev.address:
            return IdentifiedDevice(hostdev, gpu=gpu, whole_gpu=True)
        device = _function(gpu, hostdev)
        if device is not None:
            return device
    return IdentifiedDevice(hostdev)


def _function(gpu: Gpu, hostdev: Hostdev) -> IdentifiedDevice | None:
    if gpu.virtual is None:
        return None
    function = next((f for f in gpu.virtual.functions if f.pci == hostdev.address), None)
    if function is None:
        return IdentifiedDevice(hostdev, gpu=gpu, disabled=True) if hostdev.address in gpu.virtual.addresses else None
    vgpu = next((v for v in gpu.vgpus if v.function == function.pci), None)
    return IdentifiedDevice(hostdev, gpu=gpu, vgpu=vgpu, function=None if vgpu else function)


def vgpus(inventory: Inventory) -> Iterator[tuple[Gpu, Vgpu]]:
    """Every vGPU of the node, GPU by GPU."""
    for gpu in inventory.gpus:
        for vgpu in gpu.vgpus:
            yield gpu, vgpu


def device_names(device: IdentifiedDevice) -> frozenset[str]:
    """Everything that another machine's XML could call the same device, in another kernel world too. The function of
    mdevs on the GPU itself is the whole GPU, and no name of theirs.
    """
    found = {device.hostdev.key}
    if device.vgpu is not None and device.gpu is not None:
        found |= {device.vgpu.uuid, device.vgpu.function} - {device.gpu.pci, ""}
    return frozenset(found)


def find_by_stable_uuid(inventory: Inventory, uuid: str) -> tuple[Gpu, Vgpu | None, str] | None:
    """Whose stable UUID one is: the GPU, the vGPU that had it before the last reboot where that is on record, and the
    function that carries it (the GPU itself where vGPUs are mdevs of it). None for a UUID that is not ours.
    """
    for gpu in inventory.gpus:
        virtual = gpu.virtual
        recorded_vgpu = next((v for v in virtual.recorded_vgpus if v.uuid == uuid), None) if virtual else None
        if recorded_vgpu is not None:
            return gpu, recorded_vgpu, recorded_vgpu.function
        addresses = virtual.addresses if virtual else ()
        for number in range(max(len(addresses), _SLOTS)):
            if stable_uuid(gpu, number) == uuid:
                return gpu, None, addresses[number] if number < len(addresses) else gpu.pci
    return None


def vm_by_device(domains: tuple[LibvirtDomain, ...], *, exclude_uuid: str = "") -> dict[str, str]:
    """Which VM has each device, by mdev UUID or PCI address: running machines first. ``exclude_uuid`` is the UUID of a
    machine to leave out.
    """
    found: dict[str, str] = {}
    for domain in sorted(domains, key=lambda d: not d.running):
        if domain.uuid != exclude_uuid:
            for hostdev in domain.hostdevs:
                found.setdefault(hostdev.key, domain.name)
    return found


def hostdev_of(gpu: Gpu, vgpu: Vgpu) -> Hostdev:
    """A vGPU as a host device. vfio-pci refuses a function that carries a vGPU (EINVAL), so libvirt must not bind it:
    ``managed`` stays off.
    """
    if gpu.uses_vendor_vfio:
        return Hostdev(PCI, address=vgpu.function)
    return Hostdev(MDEV, uuid=vgpu.uuid, model="vfio-pci")
