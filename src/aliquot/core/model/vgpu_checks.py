"""Checks of a host for VMs: the vGPU host driver, the kernel, the IOMMU. Pure.

Sources: NVIDIA's vGPU release notes (vendor-specific VFIO came with vGPU 17, branch R550); NVIDIA's vGPU licensing
documentation. Also reports of hosts that moved to kernels without mediated devices (harvester issues 10026 and 10707).
"""

from __future__ import annotations

from aliquot.core.model.inventory import Gpu, Inventory

VENDOR_VFIO_BRANCH = 550
"""The oldest branch of the vGPU host driver that has vendor-specific VFIO (vGPU 17)."""

KERNEL_WITHOUT_MDEV = (6, 8)
"""From about this kernel, distributions drop NVIDIA's mediated devices. Only a hint: the files decide."""

DRIVER = "install NVIDIA's vGPU host driver (the vgpu-kvm package of NVIDIA's licensing portal), then: aliquot show"
"""Next step if the vGPU manager is missing."""

LICENCE = "this host has vGPUs: their guests need an NVIDIA vGPU licence, or their performance drops after a while"


def warnings(inventory: Inventory) -> tuple[str, ...]:
    """Return sentences about problems for VMs on this host. Empty if VMs are not used here."""
    messages = [s for gpu in inventory.gpus for s in _gpu(inventory, gpu)]
    able = inventory.host is not None and bool(inventory.host.vgpu_manager)
    needing = [g for g in inventory.gpus if g.passthrough or g.vgpus or _waiting(g) or (able and _sriov(g))]
    if inventory.host and needing and not inventory.host.iommu:
        messages.append(
            "the IOMMU is off, so no VM can get a GPU: turn on VT-d or AMD-Vi in the firmware, add intel_iommu=on or "
            "amd_iommu=on to the kernel command line, then reboot"
        )
    return tuple(messages)


def notes(inventory: Inventory) -> tuple[str, ...]:
    """Return sentences that are good to know and are not problems."""
    return (LICENCE,) if any(gpu.vgpus for gpu in inventory.gpus) else ()


def _waiting(gpu: Gpu) -> bool:
    """Report whether a GPU is meant for vGPUs, even if it has none now."""
    return bool(gpu.virtual and (gpu.virtual.functions or gpu.virtual.recorded_vgpus))


def _sriov(gpu: Gpu) -> bool:
    return bool(gpu.virtual and gpu.virtual.total)


def _gpu(inventory: Inventory, gpu: Gpu) -> tuple[str, ...]:
    virtual, host = gpu.virtual, inventory.host
    if virtual is None or gpu.passthrough or not _waiting(gpu):
        return ()
    branch = _branch(inventory.driver)
    if virtual.framework == "vendor-vfio" and branch and branch < VENDOR_VFIO_BRANCH:
        return (
            f"GPU {gpu.pci}: driver {inventory.driver} is older than R{VENDOR_VFIO_BRANCH} (vGPU 17), the first with "
            "vendor-specific VFIO: vGPUs may not work",
        )
    if virtual.framework:
        return ()
    if host is not None and host.vgpu_manager is False:
        return (
            f"GPU {gpu.pci} is meant for vGPUs, but NVIDIA's vGPU host driver (vGPU manager) is not installed: driver "
            f"{inventory.driver or 'unknown'} is not a vGPU host driver",
        )
    if not virtual.functions:
        return ()
    kernel = host.kernel if host else ""
    if branch and branch < VENDOR_VFIO_BRANCH and _kernel(kernel) >= KERNEL_WITHOUT_MDEV:
        return (
            f"GPU {gpu.pci}: virtual functions are enabled but offer no vGPU: kernel {kernel} needs a vGPU host driver "
            f"of R{VENDOR_VFIO_BRANCH} (vGPU 17) or later, but driver {inventory.driver} is loaded",
        )
    return (
        f"GPU {gpu.pci}: virtual functions are enabled, but the kernel has neither mediated devices nor "
        "vendor-specific VFIO: check that the vGPU host driver is loaded",
    )


def _branch(driver: str) -> int:
    head = driver.partition(".")[0]
    return int(head) if head.isdigit() else 0


def _kernel(release: str) -> tuple[int, ...]:
    """Parse ``6.14.0-37-generic`` as (6, 14). Empty if unknown, which compares as older."""
    parts = release.split(".")[:2]
    return tuple(int(p) for p in parts) if len(parts) == 2 and all(p.isdigit() for p in parts) else ()
