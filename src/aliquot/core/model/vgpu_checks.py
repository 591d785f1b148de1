"""What is wrong, or good to know, about a host of virtual machines: the vGPU host driver, the kernel, the IOMMU. Pure.

Sources: NVIDIA's vGPU release notes (vendor-specific VFIO came with vGPU 17, branch R550), reports of hosts that moved
to kernels without mediated devices (harvester issues 10026 and 10707), NVIDIA's vGPU licensing documentation.
"""

from __future__ import annotations

from aliquot.core.model.inventory import Gpu, Inventory

VENDOR_VFIO_BRANCH = 550
"""The oldest branch of the vGPU host driver that has vendor-specific VFIO (vGPU 17)."""

KERNEL_WITHOUT_MDEV = (6, 8)
"""From about this kernel on distributions leave NVIDIA's mediated devices behind; only a hint, files decide."""

DRIVER = "install NVIDIA's vGPU host driver (the vgpu-kvm package of NVIDIA's licensing portal), then: aliquot show"
"""What to do without a vGPU manager."""

LICENCE = "vGPUs exist here: their guests need an NVIDIA vGPU licence, or run with reduced performance after a while"


def warnings(inventory: Inventory) -> tuple[str, ...]:
    """Sentences about what stands in the way of virtual machines here. Empty where nobody asked for any."""
    messages = [s for gpu in inventory.gpus for s in _gpu(inventory, gpu)]
    able = inventory.host is not None and bool(inventory.host.vgpu_manager)
    needing = [g for g in inventory.gpus if g.passthrough or g.vgpus or _waiting(g) or (able and _sriov(g))]
    if inventory.host and needing and not inventory.host.iommu:
        messages.append(
            "the IOMMU is off: no virtual machine can get a GPU (switch on VT-d or AMD-Vi in the firmware, add "
            "intel_iommu=on or amd_iommu=on to the kernel's command line, reboot)"
        )
    return tuple(messages)


def notes(inventory: Inventory) -> tuple[str, ...]:
    """What is good to know and no fault."""
    return (LICENCE,) if any(gpu.vgpus for gpu in inventory.gpus) else ()


def _waiting(gpu: Gpu) -> bool:
    """Whether a GPU is meant for vGPUs, though it has none now."""
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
            "vendor-specific VFIO: vGPUs are not to be relied on",
        )
    if virtual.framework:
        return ()
    if host is not None and host.vgpu_manager is False:
        return (
            f"GPU {gpu.pci} is meant for vGPUs, but NVIDIA's vGPU host driver (vGPU manager) is not installed: driver "
            f"{inventory.driver or 'unknown'} is an ordinary one",
        )
    if not virtual.functions:
        return ()
    kernel = host.kernel if host else ""
    if branch and branch < VENDOR_VFIO_BRANCH and _kernel(kernel) >= KERNEL_WITHOUT_MDEV:
        return (
            f"GPU {gpu.pci}: virtual functions are on and offer no vGPU: kernel {kernel} needs a vGPU host driver of "
            f"R{VENDOR_VFIO_BRANCH} (vGPU 17) or later, this is {inventory.driver}",
        )
    return (
        f"GPU {gpu.pci}: virtual functions are on, but neither mediated devices nor vendor-specific VFIO are there: is "
        "the vGPU host driver loaded?",
    )


def _branch(driver: str) -> int:
    head = driver.partition(".")[0]
    return int(head) if head.isdigit() else 0


def _kernel(release: str) -> tuple[int, ...]:
    """``6.14.0-37-generic`` as (6, 14); empty where it is not known, which compares as older."""
    parts = release.split(".")[:2]
    return tuple(int(p) for p in parts) if len(parts) == 2 and all(p.isdigit() for p in parts) else ()
