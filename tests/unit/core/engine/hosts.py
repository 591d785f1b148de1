"""Hosts of VMs as values: a GPU for each vGPU framework, with its virtual functions on or off."""

from __future__ import annotations

import msgspec

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredVgpu
from aliquot.core.model.inventory import (
    FrameworkName,
    Gpu,
    GpuVirtualization,
    Holder,
    HostVirtualization,
    Inventory,
    VirtualFunction,
)
from support.factory import inventory

replace = msgspec.structs.replace
VM = Holder("vm", "4711", "win10")
FRAMEWORKS: tuple[tuple[str, FrameworkName], ...] = (
    ("tesla-t4", "mdev"),
    ("a2", "sriov-mdev"),
    ("l40s", "vendor-vfio"),
)
"""A product for each vGPU framework."""


def host(product: str, framework: FrameworkName, *, on: bool = False) -> Inventory:
    """Build a host with one GPU. If the GPU has virtual functions, the framework shows only while they are on."""
    base = inventory(product)
    row = next(r for r in vgpu.rows() if r.file == product)
    gpu = replace(base.gpus[0], subsystem=row.subsystem)
    table = base.vgpu_table(gpu)
    assert table is not None
    total = (table.total_vfs or 16) if table.sriov else 0
    addresses = tuple(address(gpu.pci, (table.first_vf or 4) + n) for n in range(total))
    functions = tuple(VirtualFunction(pci, n, "nvidia", 90 + n) for n, pci in enumerate(addresses)) if on else ()
    virtual = GpuVirtualization(
        framework=framework if functions or not total else "",
        driver="nvidia",
        iommu_group=38,
        group_members=(gpu.pci,),
        total=total,
        addresses=addresses,
        functions=functions,
        mixed_size=False if functions else None,
    )
    kernel = HostVirtualization(True, True, True, "/usr/lib/nvidia/sriov-manage" if total else "", "6.8.0")
    return replace(base, gpus=(replace(gpu, virtual=virtual),), host=kernel)


def address(pci: str, offset: int) -> str:
    """Return the PCI address at an offset from a GPU's address."""
    return f"{pci[:-4]}{offset >> 3:02x}.{offset & 7}"


def desired_state(node: Inventory, *names: str, **more: object) -> Desired:
    """Build a desired state with these time-sliced vGPUs on the first GPU, by short name."""
    gpu = node.gpus[0]
    table = node.vgpu_table(gpu)
    assert table is not None
    vgpus = tuple(DesiredVgpu(table.by_name[n].id or 0, table.by_name[n].name) for n in names)
    base = DesiredGpu(gpu.pci, False if gpu.mig.capable else None, (), vgpus=vgpus)
    return Desired((replace(base, **more),), name="host")


def held(node: Inventory, nth: int) -> Inventory:
    """Return the node with a VM on the n-th vGPU of its first GPU."""
    gpu = node.gpus[0]
    vgpus = tuple(replace(v, holders=(VM,)) if n == nth else v for n, v in enumerate(gpu.vgpus))
    return replace(node, gpus=(replace(gpu, vgpus=vgpus),))


def alive(node: Inventory) -> set[tuple[str, str, int]]:
    """Return the vGPUs that VMs have open."""
    return {(v.function, v.uuid, v.type_id) for g in node.gpus for v in g.vgpus if v.held}


def vgpus(gpu: Gpu) -> list[tuple[str, str, int]]:
    """Return the vGPUs with their functions, for comparison."""
    return sorted((v.function, v.uuid, v.type_id) for v in gpu.vgpus)
