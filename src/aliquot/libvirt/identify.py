"""Mapping of a VM's host devices to the inventory: a vGPU, a virtual function, a whole GPU, or a device outside it.
Only this module maps libvirt's names (mdev UUIDs, PCI addresses) to ours.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu, VirtualFunction
from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.libvirt.models import MDEV, PCI, Hostdev, LibvirtDomain

VFIO_PCI = "vfio-pci"
_SLOTS = 64
"""More functions or slots than any GPU has, to search for the origin of a stable UUID."""


class IdentifiedDevice(msgspec.Struct, frozen=True):
    """A host device and its place in the inventory. At most one of ``vgpu``, ``function`` and ``whole_gpu`` is set, and
    then ``gpu`` is the GPU.
    """

    hostdev: Hostdev
    gpu: Gpu | None = None
    vgpu: Vgpu | None = None
    function: VirtualFunction | None = None
    whole_gpu: bool = False
    disabled: bool = False
    """True for a virtual function that would exist if the GPU's virtual functions were enabled."""

    @property
    def in_inventory(self) -> bool:
        return self.gpu is not None


def identify_device(inventory: Inventory, hostdev: Hostdev) -> IdentifiedDevice:
    """Return what a host device currently is."""
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
    """Yield every vGPU of the node, GPU by GPU."""
    for gpu in inventory.gpus:
        for vgpu in gpu.vgpus:
            yield gpu, vgpu


def device_names(device: IdentifiedDevice) -> frozenset[str]:
    """Return every name that another VM's XML could have for the same device, also with another vGPU framework. The
    function of mdevs on the GPU itself is the whole GPU, and not a name of the mdevs.
    """
    found = {device.hostdev.key}
    if device.vgpu is not None and device.gpu is not None:
        found |= {device.vgpu.uuid, device.vgpu.function} - {device.gpu.pci, ""}
    return frozenset(found)


def find_by_stable_uuid(inventory: Inventory, uuid: str) -> tuple[Gpu, Vgpu | None, str] | None:
    """Return the origin of a stable UUID: the GPU, the vGPU that had it before the last reboot if that is on record,
    and its function (the GPU itself if vGPUs are mdevs of it). Return None for a UUID that is not ours.
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
    """Return the VM of each device, by mdev UUID or PCI address; running VMs take precedence. ``exclude_uuid`` is the
    UUID of a VM to omit.
    """
    found: dict[str, str] = {}
    for domain in sorted(domains, key=lambda d: not d.running):
        if domain.uuid != exclude_uuid:
            for hostdev in domain.hostdevs:
                found.setdefault(hostdev.key, domain.name)
    return found


def hostdev_of(gpu: Gpu, vgpu: Vgpu) -> Hostdev:
    """Return a vGPU as a host device. vfio-pci refuses a function that has a vGPU (EINVAL), so libvirt must not bind
    it: ``managed`` stays off.
    """
    if gpu.uses_vendor_vfio:
        return Hostdev(PCI, address=vgpu.function)
    return Hostdev(MDEV, uuid=vgpu.uuid, model="vfio-pci")


def shared_parts(gpu: Gpu) -> str:
    """Return what VMs can have of a GPU, so that no VM may have it whole: ``32 virtual functions``; "" for nothing.

    vGPUs of a GPU without virtual functions are mdevs of the GPU itself.
    """
    if gpu.virtual is not None and gpu.virtual.enabled:
        return f"{len(gpu.virtual.functions)} virtual functions"
    return f"{len(gpu.vgpus)} vGPU{'s' if len(gpu.vgpus) > 1 else ''}" if gpu.vgpus else ""
