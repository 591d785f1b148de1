"""Nodes with vGPUs, made by hand from the catalog: an A2, an L40S and a T4, each with another vGPU framework."""

from __future__ import annotations

import msgspec

from aliquot.core.model import vgpu_types as tables
from aliquot.core.model.inventory import (
    FrameworkName,
    Gpu,
    GpuVirtualization,
    Holder,
    HostVirtualization,
    Inventory,
    Vgpu,
    VirtualFunction,
)
from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.libvirt.models import MDEV, PCI, Hostdev, LibvirtDomain

HOST = HostVirtualization(iommu=True, vfio=True, vgpu_manager=True)


def make_gpu(
    product: str,
    bus: int,
    framework: FrameworkName,
    *types: str,
    functions: int = 16,
    passthrough: bool = False,
    index: int = 0,
) -> Gpu:
    """Build a GPU whose first functions have vGPUs of these short types. ``-`` leaves one without."""
    table = next(t for t in tables.tables() if t.name == product)
    gpu = Gpu(
        pci=f"0000:{bus:02x}:00.0",
        uuid=f"GPU-{bus:08x}-0000-4000-8000-000000000000",
        index=index,
        product=product,
        pci_device=table.pci_device,
        subsystem=f"{table.subsystem}10DE" if table.subsystem else "",
        passthrough=passthrough,
    )
    addresses = tuple(f"0000:{bus:02x}:{(4 + n) // 8:02x}.{(4 + n) % 8}" for n in range(functions))
    carried = []
    for n, short in enumerate(types):
        if short != "-":
            chosen = table.by_name[short]
            place = gpu.pci if framework == "mdev" else addresses[n]
            carried.append(Vgpu(place, chosen.id or 0, chosen.name, stable_uuid(gpu, n)))
    there = tuple(VirtualFunction(a, n, "nvidia", 90 + n) for n, a in enumerate(addresses))
    virtual = GpuVirtualization(
        framework=framework,
        driver="vfio-pci" if passthrough else "nvidia",
        iommu_group=38,
        total=functions,
        addresses=addresses,
        functions=() if passthrough else there,
    )
    return msgspec.structs.replace(gpu, vgpus=tuple(carried), virtual=virtual)


def node(*gpus: Gpu, host: HostVirtualization | None = HOST) -> Inventory:
    return Inventory(node="n", gpus=gpus, driver="580.65.06", host=host)


A2 = make_gpu("NVIDIA A2", 0x08, "sriov-mdev", "A2-4Q", "A2-4Q", "A2-4A", "-")
"""Two A2-4Q and an A2-4A as mdevs of functions."""

L40S = make_gpu("NVIDIA L40S", 0x26, "vendor-vfio", "L40S-8Q", "L40S-8Q", "-", functions=32, index=1)
"""Two L40S-8Q, vendor-specific VFIO."""

T4 = make_gpu("Tesla T4", 0x3B, "mdev", "T4-4Q", "T4-4Q", functions=0, index=2)
"""Two T4-4Q as mdevs of the GPU itself."""


def held(gpu: Gpu, number: int, *holders: Holder) -> Gpu:
    """Return the GPU with holders on one of its vGPUs."""
    vgpus = list(gpu.vgpus)
    vgpus[number] = msgspec.structs.replace(vgpus[number], holders=holders)
    return msgspec.structs.replace(gpu, vgpus=tuple(vgpus))


def changed(gpu: Gpu, **virtual: object) -> Gpu:
    """Return the GPU with other facts of the kernel."""
    assert gpu.virtual is not None
    return msgspec.structs.replace(gpu, virtual=msgspec.structs.replace(gpu.virtual, **virtual))


def mdev(gpu: Gpu, number: int, **more: object) -> Hostdev:
    return msgspec.structs.replace(Hostdev(MDEV, uuid=gpu.vgpus[number].uuid, model="vfio-pci"), **more)


def pci(address: str, *, managed: bool = False) -> Hostdev:
    return Hostdev(PCI, address=address, managed=managed)


def vm(
    name: str, *config: Hostdev, live: tuple[Hostdev, ...] | None = None, graphics: bool = True, persistent: bool = True
) -> LibvirtDomain:
    """Build a VM. ``live`` devices make it a running one."""
    return LibvirtDomain(
        name=name,
        uuid=f"uuid-of-{name}",
        id=None if live is None else 7,
        persistent=persistent,
        live=live or (),
        config=config,
        graphics=graphics,
    )
