"""A scan of the PCI bus for GPUs, from files alone: it needs no GPU driver.

It lists NVIDIA's functions and the other members of their IOMMU groups, because a group is assigned to a VM as a whole.
A scan of everything lists the functions of all vendors. PCI-to-PCI bridges are omitted, as in Harvester: they cannot
be assigned.
"""

from __future__ import annotations

from collections.abc import Collection

from aliquot.core.model.pci import PciFunction
from aliquot.errors import HardwareError
from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel import sriov
from aliquot.hardware.kernel.function_users import interfaces, master
from aliquot.hardware.kernel.pci_ids import PciNames, pci_names
from aliquot.hardware.kernel.sysfs import MalformedError, is_absent, link_target, list_names, read_number, read_optional
from aliquot.hardware.kernel_files import KernelFiles

_DISPLAY = ("0300", "0302")
_PCI_BRIDGE = "0604"


def scan(files: KernelFiles, names_of: PciNames | None = None, *, everything: bool = False) -> tuple[PciFunction, ...]:
    """Return all these functions in the order of their addresses. A function that disappears during the scan is
    omitted.

    Raises HardwareError if the bus cannot be read or an attribute is malformed. An unreadable function must not be
    reported as gone, because then the objects that represent it would be deleted.
    """
    id_names = names_of or pci_names()
    try:
        listed = list_names(files, bus.DEVICES) if everything else _nvidia_groups(files)
        networks = interfaces(files) if everything else {}
        found = [_function(files, address, id_names, networks.get(address, ())) for address in sorted(listed)]
    except (OSError, MalformedError) as failure:
        path = getattr(failure, "filename", None) or bus.DEVICES
        reason = getattr(failure, "strerror", None) or str(failure)
        raise HardwareError(f"the PCI bus cannot be read: {reason}", next_step=f"ls -l {path}") from failure
    return tuple(f for f in found if f is not None and f.class_id != _PCI_BRIDGE)


def _nvidia_groups(files: KernelFiles) -> Collection[str]:
    """Return NVIDIA's functions and the other members of their IOMMU groups."""
    nvidia = [a for a in list_names(files, bus.DEVICES) if read_number(files, bus.attribute(a, "vendor")) == bus.NVIDIA]
    groups = {group for group in (bus.group(files, a) for a in nvidia) if group is not None}
    return {member for group in groups for member in bus.members(files, group)}.union(nvidia)


def _function(files: KernelFiles, pci: str, id_names: PciNames, networks: tuple[str, ...]) -> PciFunction | None:
    """Return the function at an address, or None if it disappeared since it was listed."""
    try:
        vendor, device, class_code = (
            read_number(files, bus.attribute(pci, name)) for name in ("vendor", "device", "class")
        )
        if vendor is None or device is None or class_code is None:
            return None
        ids, class_id = (f"{vendor:04x}", f"{device:04x}"), f"{class_code >> 8:04x}"
        physfn = link_target(files, bus.attribute(pci, "physfn"))
        return PciFunction(
            address=pci,
            vendor_id=ids[0],
            device_id=ids[1],
            class_id=class_id,
            vendor=id_names.vendor(ids[0]),
            product=id_names.product(*ids),
            subclass=id_names.subclass(class_id),
            subsystem=_subsystem(files, pci),
            iommu_group=bus.group(files, pci),
            driver=bus.driver(files, pci),
            numa=_numa(files, pci),
            physfn=physfn,
            sriov=_sriov(files, pci),
            total=sriov.total(files, pci),
            virtual=_virtual_functions(files, pci),
            interfaces=networks,
            uplink=next(filter(None, (master(files, each) for each in networks)), ""),
            gpu=vendor == bus.NVIDIA and class_id in _DISPLAY and not physfn,
        )
    except OSError as failure:
        if is_absent(failure):
            return None
        raise


def _subsystem(files: KernelFiles, pci: str) -> str:
    """Return the board's ids, packed as NVML packs them (``0x157E10DE``), or "" if there are none."""
    vendor, device = (read_number(files, bus.attribute(pci, f"subsystem_{name}")) for name in ("vendor", "device"))
    return "" if vendor is None or device is None else f"0x{device:04X}{vendor:04X}"


def _numa(files: KernelFiles, pci: str) -> int | None:
    """Return the NUMA node. None for the kernel's -1: the host has no NUMA nodes, or its firmware
    does not report them.
    """
    node = read_number(files, bus.attribute(pci, "numa_node"))
    return None if node is None or node < 0 else node


def _sriov(files: KernelFiles, pci: str) -> bool:
    """Return whether virtual functions are usable. A Tesla T4 has the capability, but 0 in ``sriov_vf_device``."""
    text = read_optional(files, bus.attribute(pci, "sriov_vf_device"))
    return bool(text) and text not in ("0", "0000", "0x0")


def _virtual_functions(files: KernelFiles, pci: str) -> tuple[str, ...]:
    """Return the virtual functions in lexical order: virtfn0, virtfn1, virtfn10, ..., virtfn2. Harvester's lists have
    this order, and clients keep it.
    """
    links = sorted(name for name in list_names(files, f"{bus.DEVICES}/{pci}") if name.startswith("virtfn"))
    found = (link_target(files, bus.attribute(pci, link)) for link in links)
    return tuple(filter(None, found))
