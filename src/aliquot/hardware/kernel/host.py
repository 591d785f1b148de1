"""The host's support for VMs."""

from __future__ import annotations

from aliquot.core.model.inventory import HostVirtualization
from aliquot.hardware.kernel.pci import DRIVERS, GROUPS, VFIO
from aliquot.hardware.kernel.sriov_manage import Tools
from aliquot.hardware.kernel.sysfs import list_names, read_optional
from aliquot.hardware.kernel_files import KernelFiles

NVSWITCHES = "/proc/driver/nvidia-nvswitch/devices"
"""One directory for each NVSwitch (open GPU kernel modules, kernel-open/nvidia/procfs_nvswitch.c)."""
_MANAGER = "nvidia_vgpu_vfio"


def read_host(files: KernelFiles, tools: Tools) -> HostVirtualization:
    """Read the host's support from a few files. Built-in modules appear in /sys/module like loaded ones. Raises
    OSError.
    """
    return HostVirtualization(
        iommu=bool(list_names(files, GROUPS)),
        vfio=_module_loaded(files, "vfio_pci") or files.exists(f"{DRIVERS}/{VFIO}"),
        vgpu_manager=vgpu_driver_loaded(files),
        sriov_manage=tools.sriov_manage,
        kernel=read_optional(files, "/proc/sys/kernel/osrelease") or "",
        nvswitch=bool(list_names(files, NVSWITCHES)),
    )


def vgpu_driver_loaded(files: KernelFiles) -> bool | None:
    """Return whether NVIDIA's vGPU host driver is loaded; None if no NVIDIA driver is loaded."""
    if _module_loaded(files, _MANAGER):
        return True
    loaded = read_optional(files, "/proc/modules") or ""
    if any(line.startswith(f"{_MANAGER} ") for line in loaded.splitlines()):
        return True
    return False if _module_loaded(files, "nvidia") or files.exists("/proc/driver/nvidia/version") else None


def _module_loaded(files: KernelFiles, name: str) -> bool:
    return files.exists(f"/sys/module/{name}")
