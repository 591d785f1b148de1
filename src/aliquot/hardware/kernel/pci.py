"""PCI functions: their vendor, driver and IOMMU group, and how a driver is changed.

The driver is changed through ``driver_override`` and ``drivers_probe``, which affect one function. ``new_id`` is never
written: it affects all functions with that device id, and virtual functions have the device id of their GPU.
"""

from __future__ import annotations

import msgspec

from aliquot.hardware.kernel.sysfs import MalformedError, link_target, list_names, read_number, read_optional
from aliquot.hardware.kernel_files import KernelFiles

DEVICES = "/sys/bus/pci/devices"
DRIVERS = "/sys/bus/pci/drivers"
PROBE = "/sys/bus/pci/drivers_probe"
GROUPS = "/sys/kernel/iommu_groups"
VFIO = "vfio-pci"
DRIVER = "nvidia"
NVIDIA = 0x10DE
_DISPLAY = (0x0300, 0x0302)
_BRIDGE = 0x06
_NONE = "(null)"


class PciFunctionIds(msgspec.Struct, frozen=True):
    """The ids of a function, packed as NVML packs them (``0x25B610DE``)."""

    pci_device: str
    subsystem: str


class Member(msgspec.Struct, frozen=True):
    """A function in an IOMMU group."""

    pci: str
    driver: str
    """Empty if it has none."""
    bridge: bool
    """VFIO permits bridges in a group."""
    nvidia: bool


def attribute(pci: str, name: str) -> str:
    """Return the path of a function's attribute."""
    return f"{DEVICES}/{pci}/{name}"


def identity(files: KernelFiles, pci: str) -> PciFunctionIds:
    """Return the ids of a function. Raises MalformedError if they cannot be read."""

    def packed(device: str, vendor: str) -> str:
        low, high = read_number(files, attribute(pci, vendor)), read_number(files, attribute(pci, device))
        if low is None or high is None:
            raise MalformedError(f"{DEVICES}/{pci} has no {vendor} or {device}")
        return f"0x{high:04X}{low:04X}"

    return PciFunctionIds(packed("device", "vendor"), packed("subsystem_device", "subsystem_vendor"))


def is_gpu(files: KernelFiles, pci: str) -> bool:
    """Return whether this is a physical NVIDIA display function: a VGA or 3D controller, not a virtual or audio
    function.
    """
    if read_number(files, attribute(pci, "vendor")) != NVIDIA:
        return False
    class_code = read_number(files, attribute(pci, "class")) or 0
    return class_code >> 8 in _DISPLAY and not files.exists(attribute(pci, "physfn"))


def driver_gpus(files: KernelFiles) -> tuple[str, ...]:
    """Return the GPUs that are bound to NVIDIA's driver, in PCI order. Reads only the driver's directory."""
    return tuple(p for p in sorted(list_names(files, f"{DRIVERS}/{DRIVER}")) if p.count(":") == 2 and is_gpu(files, p))


def unmanaged_gpus(files: KernelFiles) -> tuple[str, ...]:
    """Return the NVIDIA GPUs that are bound neither to NVIDIA's driver nor to vfio-pci, in PCI order. Reads the whole
    bus.
    """
    found = (p for p in sorted(list_names(files, DEVICES)) if is_gpu(files, p))
    return tuple(p for p in found if driver(files, p) not in (DRIVER, VFIO))


def vfio_gpus(files: KernelFiles) -> tuple[str, ...]:
    """Return the NVIDIA GPUs that are bound to vfio-pci, in PCI order. Reads only the driver's directory."""
    return tuple(p for p in sorted(list_names(files, f"{DRIVERS}/{VFIO}")) if p.count(":") == 2 and is_gpu(files, p))


def driver(files: KernelFiles, pci: str) -> str:
    """Return the driver that a function is bound to, or ""."""
    return link_target(files, attribute(pci, "driver"))


def driver_override(files: KernelFiles, pci: str) -> str:
    """Return the only driver that may bind the function, or "" if any may."""
    text = read_optional(files, attribute(pci, "driver_override")) or ""
    return "" if text == _NONE else text


def group(files: KernelFiles, pci: str) -> int | None:
    """Return the number of the function's IOMMU group; None if the IOMMU is off."""
    name = link_target(files, attribute(pci, "iommu_group"))
    return int(name) if name.isdigit() else None


def members(files: KernelFiles, group_number: int) -> tuple[str, ...]:
    """Return the addresses in an IOMMU group, in PCI order."""
    return tuple(sorted(list_names(files, f"{GROUPS}/{group_number}/devices")))


def member(files: KernelFiles, pci: str) -> Member:
    class_code = read_number(files, attribute(pci, "class")) or 0
    return Member(
        pci, driver(files, pci), class_code >> 16 == _BRIDGE, read_number(files, attribute(pci, "vendor")) == NVIDIA
    )


def slot(pci: str) -> str:
    """Return the address without its function number, which the functions of one board share (GPU, audio, USB)."""
    return pci.rpartition(".")[0]


def rebind(files: KernelFiles, pci: str, wanted: str | None) -> None:
    """Unbind a function from its driver and bind it to ``wanted``: "" for no driver, None for any driver except
    vfio-pci. Raises OSError; a driver that does not accept it raises nothing.
    """
    current = driver(files, pci)
    if current != wanted:
        files.write(attribute(pci, "driver_override"), wanted or "\n")
        if current and (wanted is not None or current == VFIO):
            files.write(attribute(pci, "driver/unbind"), pci)
        if wanted != "":
            files.write(PROBE, pci)
    if driver_override(files, pci):
        # A bound function keeps its driver. With the override, no other program could give it another one later:
        # pcidevices after a move of the node.
        files.write(attribute(pci, "driver_override"), "\n")
