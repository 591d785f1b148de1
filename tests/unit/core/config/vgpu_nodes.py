"""Nodes with products that have a table of vGPU types, without any driver."""

from __future__ import annotations

import msgspec

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import (
    FrameworkName,
    Gpu,
    GpuVirtualization,
    HostVirtualization,
    Inventory,
    Mig,
    Vgpu,
    VirtualFunction,
)
from aliquot.core.model.vgpu_types import VgpuTable

HOST = HostVirtualization(iommu=True, vfio=True, vgpu_manager=True, sriov_manage="/usr/lib/nvidia/sriov-manage")


def make_gpu(name: str) -> VgpuTable:
    """Return the table of a product by the end of its name: ``A2``, ``T4``, ``H100 80GB HBM3``."""
    for table in vgpu.tables():
        if name in (table.name, table.name.removeprefix("NVIDIA "), table.name.removeprefix("Tesla ")):
            return table
    raise KeyError(name)


def board(table: VgpuTable, index: int = 0) -> Gpu:
    """Build a GPU of a product, with the subsystem id that distinguishes it from others with the same PCI id."""
    return Gpu(
        pci=f"0000:{0x10 + index:02x}:00.0",
        uuid=f"GPU-{index:08x}-0000-4000-8000-000000000000",
        index=index,
        product=table.name,
        pci_device=table.pci_device,
        subsystem=f"{table.subsystem}10DE" if table.subsystem else "",
        family=table.mig_family,
        mig=Mig(capable=table.mig_family is not None),
    )


def node(*names: str) -> Inventory:
    """Build a node with these products, in this order."""
    return Inventory(node="cards", gpus=tuple(board(make_gpu(name), n) for n, name in enumerate(names)))


def hosting(inventory: Inventory, *, enabled: bool = False, framework: FrameworkName = "vendor-vfio") -> Inventory:
    """Return the node with the vGPU host driver. ``enabled`` sets whether virtual functions are on."""
    return msgspec.structs.replace(
        inventory, host=HOST, gpus=tuple(_hosting(inventory, gpu, enabled, framework) for gpu in inventory.gpus)
    )


def _hosting(inventory: Inventory, gpu: Gpu, enabled: bool, framework: FrameworkName) -> Gpu:
    table = inventory.vgpu_table(gpu)
    assert table is not None
    total = (table.total_vfs or max(table.at_least, 1)) if table.sriov else 0
    addresses = tuple(f"{gpu.pci[:8]}{(n + 4) >> 3:02x}.{(n + 4) & 7}" for n in range(total))
    functions = tuple(VirtualFunction(a, n, "nvidia", 100 + n) for n, a in enumerate(addresses)) if enabled else ()
    if not table.sriov:
        framework = "mdev"
    virtual = GpuVirtualization(
        framework=framework if enabled or not table.sriov else "",
        driver="nvidia",
        iommu_group=30 + gpu.index,
        group_members=(gpu.pci,),
        total=total,
        addresses=addresses,
        functions=functions,
        mixed_size=False if enabled and table.sriov else None,
    )
    return msgspec.structs.replace(gpu, virtual=virtual)


def changed(inventory: Inventory, index: int, **fields: object) -> Inventory:
    """Return the node with one GPU changed. ``virtual`` fields may have a leading ``virtual_``."""
    gpu = inventory.gpus[index]
    inner = {name.removeprefix("virtual_"): value for name, value in fields.items() if name.startswith("virtual_")}
    outer = {name: value for name, value in fields.items() if not name.startswith("virtual_")}
    if inner:
        outer["virtual"] = msgspec.structs.replace(gpu.virtual or GpuVirtualization(), **inner)
    gpus = list(inventory.gpus)
    gpus[index] = msgspec.structs.replace(gpu, **outer)
    return msgspec.structs.replace(inventory, gpus=tuple(gpus))


def with_vgpus(inventory: Inventory, index: int, *names: str) -> Inventory:
    """Return the node with vGPUs of these types on one GPU, in the order of its functions."""
    gpu = inventory.gpus[index]
    table = inventory.vgpu_table(gpu)
    assert table is not None
    places = [f.pci for f in (gpu.virtual or GpuVirtualization()).functions] or [gpu.pci] * len(names)
    made = []
    for n, (place, name) in enumerate(zip(places, names, strict=False)):
        each = table.by_name[name]
        assert each.id is not None
        made.append(Vgpu(place, each.id, each.name, f"00000000-0000-5000-8000-{index:04x}{n:08x}"))
    return changed(inventory, index, vgpus=tuple(made))
