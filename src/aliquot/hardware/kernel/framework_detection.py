"""Detection of a GPU's vGPU framework, from its files and never from a version."""

from __future__ import annotations

from collections.abc import Sequence

from aliquot.core.model.inventory import FrameworkName
from aliquot.hardware.kernel.framework import CURRENT, TYPES, VgpuFramework
from aliquot.hardware.kernel.pci import attribute
from aliquot.hardware.kernel_files import KernelFiles


def detect_framework(files: KernelFiles, pci: str, functions: Sequence[str], sriov: bool) -> VgpuFramework | None:
    """Return the framework of the GPU's first virtual function that shows one, or of the GPU itself if it has no
    SR-IOV. None if no vGPU driver is loaded, or if virtual functions are disabled and nothing shows.
    """
    for function in functions:
        if files.exists(attribute(function, CURRENT)):
            from aliquot.hardware.kernel.vendor_vfio import VendorVfio

            return VendorVfio(files)
        if files.exists(attribute(function, TYPES)):
            return _mdev(files, "sriov-mdev")
    if not sriov and not functions and files.exists(attribute(pci, TYPES)):
        return _mdev(files, "mdev")
    return None


def _mdev(files: KernelFiles, name: FrameworkName) -> VgpuFramework:
    from aliquot.hardware.kernel.mdev import MdevFramework

    return MdevFramework(files, name)
