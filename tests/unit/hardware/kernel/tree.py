"""A folder with the files of a host: a file keeps what was written to it."""

from __future__ import annotations

import os
from pathlib import Path

from aliquot.core.model.inventory import Gpu
from aliquot.hardware.kernel.driver_types import LearnedTypes
from aliquot.hardware.kernel.reader import KernelReadContext
from aliquot.hardware.kernel.vfio_holders import Holders
from aliquot.hardware.kernel.vgpu_owners import OwnerMap
from aliquot.hardware.kernel_files import RealFiles

A2 = "0000:08:00.0"
DEVICES = "/sys/bus/pci/devices"


class Tree(RealFiles):
    """Files of a host. ``put`` creates files and ``tie`` links, with their folders."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))

    def put(self, path: str, text: str) -> None:
        self._room(path)
        Path(self.root + path).write_text(text)

    def tie(self, path: str, target: str) -> None:
        self._room(path)
        os.symlink(target, self.root + path)

    def folder(self, path: str) -> None:
        os.makedirs(self.root + path, exist_ok=True)

    def _room(self, path: str) -> None:
        os.makedirs(os.path.dirname(self.root + path), exist_ok=True)

    def function(self, pci: str, *, device: str = "0x25b6", kind: str = "0x030200", driver: str = "nvidia") -> None:
        """Add an NVIDIA PCI function with a driver and its own IOMMU group."""
        for name, text in {
            "vendor": "0x10de",
            "device": device,
            "class": kind,
            "subsystem_vendor": "0x10de",
            "subsystem_device": "0x157e",
            "driver_override": "(null)",
        }.items():
            self.put(f"{DEVICES}/{pci}/{name}", f"{text}\n")
        group = 38 + len(self.names("/sys/kernel/iommu_groups")) if self.exists("/sys/kernel/iommu_groups") else 38
        self.tie(f"{DEVICES}/{pci}/iommu_group", f"../../../../kernel/iommu_groups/{group}")
        self.folder(f"/sys/kernel/iommu_groups/{group}/devices/{pci}")
        if driver:
            self.tie(f"{DEVICES}/{pci}/driver", f"../../../../bus/pci/drivers/{driver}")
            self.put(f"/sys/bus/pci/drivers/{driver}/{pci}", "")

    def sriov(self, pci: str, total: int, offset: int = 4, on: int = 0) -> None:
        """Add SR-IOV to a GPU. ``on`` is the number of enabled virtual functions, at offset and stride 1."""
        for name, value in {
            "totalvfs": total,
            "numvfs": on,
            "offset": offset,
            "stride": 1,
            "vf_device": "25b6",
        }.items():
            self.put(f"{DEVICES}/{pci}/sriov_{name}", f"{value}\n")

    def virtual(self, pci: str, number: int, address: str) -> None:
        self.function(address)
        self.tie(f"{DEVICES}/{pci}/virtfn{number}", f"../{address}")
        self.tie(f"{DEVICES}/{address}/physfn", f"../{pci}")

    def process(
        self, pid: int, *opened: str, cmdline: str = "qemu-system-x86_64\0-name\0guest=web,debug-threads=on\0"
    ) -> None:
        self.put(f"/proc/{pid}/comm", "qemu-system-x86\n")
        self.put(f"/proc/{pid}/cmdline", cmdline)
        self.folder(f"/proc/{pid}/fd")
        for number, path in enumerate(opened):
            self.tie(f"/proc/{pid}/fd/{number}", path)

    def scene(self, book: OwnerMap | None = None, boot: str = "boot-1") -> KernelReadContext:
        memory = LearnedTypes(self.root + "/lib")
        return KernelReadContext(
            self, book or OwnerMap(), lambda: boot, Holders(self), lambda: memory, lambda pci: None
        )


def bare(pci: str = A2, device: str = "0x25B610DE", subsystem: str = "0x157E10DE") -> Gpu:
    """Build a GPU as NVML reports it."""
    return Gpu(pci, "GPU-1", 0, "NVIDIA A2", pci_device=device, subsystem=subsystem)
