"""Hosts of virtual machines as values: a GPU of each kernel world, its virtual functions on or off."""

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
WORLDS: tuple[tuple[str, FrameworkName], ...] = (("tesla-t4", "mdev"), ("a2", "sriov-mdev"), ("l40s", "vendor-vfio"))
"""A product for each kernel world."""


def host(product: str, world: FrameworkName, *, on: bool = False) -> Inventory:
    """One GPU; its world shows only with its virtual functions on, where it has any."""
    base = inventory(product)
    row = next(r for r in vgpu.rows() if r.file == product)
    gpu = replace(base.gpus[0], subsystem=row.subsystem)
    table = base.vgpu_table(gpu)
    assert table is not None
    total = (table.total_vfs or 16) if table.sriov else 0
    addresses = tuple(address(gpu.pci, (table.first_vf or 4) + n) for n in range(total))
    functions = tuple(VirtualFunction(pci, n, "nvidia", 90 + n) for n, pci in enumerate(addresses)) if on else ()
    virtual = GpuVirtualization(
        framework=world if functions or not total else "",
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
    """The PCI address so many functions after a GPU's."""
    return f"{pci[:-4]}{offset >> 3:02x}.{offset & 7}"


def wish(node: Inventory, *names: str, **more: object) -> Desired:
    """These vGPUs on the first GPU, by short name, time-sliced."""
    gpu = node.gpus[0]
    table = node.vgpu_table(gpu)
    assert table is not None
    vgpus = tuple(DesiredVgpu(table.by_name[n].id or 0, table.by_name[n].name) for n in names)
    base = DesiredGpu(gpu.pci, False if gpu.mig.capable else None, (), vgpus=vgpus)
    return Desired((replace(base, **more),), name="host")


def held(node: Inventory, nth: int) -> Inventory:
    """The node with a virtual machine on the n-th vGPU of its first GPU."""
    gpu = node.gpus[0]
    vgpus = tuple(replace(v, holders=(VM,)) if n == nth else v for n, v in enumerate(gpu.vgpus))
    return replace(node, gpus=(replace(gpu, vgpus=vgpus),))


def alive(node: Inventory) -> set[tuple[str, str, int]]:
    """The vGPUs that virtual machines have open."""
    return {(v.function, v.uuid, v.type_id) for g in node.gpus for v in g.vgpus if v.held}


def vgpus(gpu: Gpu) -> list[tuple[str, str, int]]:
    """What lies where, for comparing."""
    return sorted((v.function, v.uuid, v.type_id) for v in gpu.vgpus)
