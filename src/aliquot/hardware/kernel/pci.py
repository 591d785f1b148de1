"""PCI functions: which are NVIDIA's, which driver has them, which IOMMU group they share, and how a driver is changed.

A driver is changed by ``driver_override`` and ``drivers_probe``, which concern one function. ``new_id`` is never
written: it concerns every function of that model, and virtual functions carry the model of their GPU.
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
    """What a function is: ids packed as NVML packs them (``0x25B610DE``)."""

    pci_device: str
    subsystem: str


class Member(msgspec.Struct, frozen=True):
    """A function in an IOMMU group: its driver (empty: none), whether it is a bridge, which VFIO lets pass, and whether
    it is NVIDIA's.
    """

    pci: str
    driver: str
    bridge: bool
    nvidia: bool


def attribute(pci: str, name: str) -> str:
    """The path of a function's attribute."""
    return f"{DEVICES}/{pci}/{name}"


def identity(files: KernelFiles, pci: str) -> PciFunctionIds:
    """Raises MalformedError where the ids cannot be read."""

    def packed(device: str, vendor: str) -> str:
        low, high = read_number(files, attribute(pci, vendor)), read_number(files, attribute(pci, device))
        if low is None or high is None:
            raise MalformedError(f"{DEVICES}/{pci} has no {vendor} or {device}")
        return f"0x{high:04X}{low:04X}"

    return PciFunctionIds(packed("device", "vendor"), packed("subsystem_device", "subsystem_vendor"))


def is_gpu(files: KernelFiles, pci: str) -> bool:
    """Whether it is a physical display function of NVIDIA's: VGA or 3D controller, no virtual function, no audio."""
    if read_number(files, attribute(pci, "vendor")) != NVIDIA:
        return False
    class_code = read_number(files, attribute(pci, "class")) or 0
    return class_code >> 8 in _DISPLAY and not files.exists(attribute(pci, "physfn"))


def driver_gpus(files: KernelFiles) -> tuple[str, ...]:
    """The GPUs that NVIDIA's driver has, in PCI order. Reads its folder only."""
    return tuple(p for p in sorted(list_names(files, f"{DRIVERS}/{DRIVER}")) if p.count(":") == 2 and is_gpu(files, p))


def unmanaged_gpus(files: KernelFiles) -> tuple[str, ...]:
    """The NVIDIA GPUs that neither NVIDIA's driver nor vfio-pci has, in PCI order. Reads the whole bus."""
    found = (p for p in sorted(list_names(files, DEVICES)) if is_gpu(files, p))
    return tuple(p for p in found if driver(files, p) not in (DRIVER, VFIO))


def vfio_gpus(files: KernelFiles) -> tuple[str, ...]:
    """The NVIDIA GPUs that vfio-pci has, in PCI order. Reads its folder only."""
    return tuple(p for p in sorted(list_names(files, f"{DRIVERS}/{VFIO}")) if p.count(":") == 2 and is_gpu(files, p))


def driver(files: KernelFiles, pci: str) -> str:
    """The driver that a function is bound to; empty where there is none."""
    return link_target(files, attribute(pci, "driver"))


def driver_override(files: KernelFiles, pci: str) -> str:
    """The only driver that may bind it, empty where any may."""
    text = read_optional(files, attribute(pci, "driver_override")) or ""
    return "" if text == _NONE else text


def group(files: KernelFiles, pci: str) -> int | None:
    """The number of its IOMMU group; None with the IOMMU off."""
    name = link_target(files, attribute(pci, "iommu_group"))
    return int(name) if name.isdigit() else None


def members(files: KernelFiles, group_number: int) -> tuple[str, ...]:
    """The addresses in an IOMMU group, in PCI order."""
    return tuple(sorted(list_names(files, f"{GROUPS}/{group_number}/devices")))


def member(files: KernelFiles, pci: str) -> Member:
    class_code = read_number(files, attribute(pci, "class")) or 0
    return Member(
        pci, driver(files, pci), class_code >> 16 == _BRIDGE, read_number(files, attribute(pci, "vendor")) == NVIDIA
    )


def slot(pci: str) -> str:
    """The address without its function number: what is on one board beside each other (GPU, its audio, its USB)."""
    return pci.rpartition(".")[0]


def rebind(files: KernelFiles, pci: str, wanted: str | None) -> None:
    """Take a function from its driver and give it to ``wanted``: empty for none, None for any but vfio-pci that takes
    it. Raises OSError; a driver that does not take it raises nothing.
    """
    current = driver(files, pci)
    if current != wanted:
        files.write(attribute(pci, "driver_override"), wanted or "\n")
        if current and (wanted is not None or current == VFIO):
            files.write(attribute(pci, "driver/unbind"), pci)
        if wanted != "":
            files.write(PROBE, pci)
    if wanted != VFIO and driver_override(files, pci):
        # The override stays for vfio-pci alone: after the next unbind any driver may have the function again.
        files.write(attribute(pci, "driver_override"), "\n")
