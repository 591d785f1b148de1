"""GPUs with virtual functions and vGPUs, built by hand from the catalog, for tests that need no kernel."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance, DesiredVgpu
from aliquot.core.model.inventory import (
    FrameworkName,
    Gpu,
    GpuVirtualization,
    Holder,
    HostVirtualization,
    Inventory,
    Mig,
    MigMode,
    Vgpu,
    VirtualFunction,
)
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

PCI = "0000:08:00.0"
VM = Holder("vm", "4711", "guest")
FRAMEWORKS: dict[str, FrameworkName] = {"ampere": "sriov-mdev"}
"""The vGPU framework of a board's virtual functions, if it is not vendor-specific VFIO: either is possible for all."""
replace = msgspec.structs.replace


def table(name: str) -> VgpuTable:
    """Return the vGPU types of a product: ``NVIDIA A2``."""
    return next(t for t in vgpu.tables() if t.name == name)


def kind(name: str, short: str) -> VgpuType:
    """Return a type of a product by its short name, or the short name without the product: ``4Q``."""
    of = table(name)
    return next(t for t in of.types if t.short == short or t.short.endswith(f"-{short}"))


def address(number: int, pci: str = PCI, first: int = 4) -> str:
    """Return the PCI address of a virtual function."""
    at = first + number
    return f"{pci[:8]}{at // 8:02x}.{at % 8}"


def functions(count: int, pci: str = PCI) -> tuple[VirtualFunction, ...]:
    return tuple(VirtualFunction(address(n, pci), n, "nvidia", 90 + n) for n in range(count))


def gpu(
    name: str, *, on: bool = True, mig: bool = False, mixed: bool = False, pci: str = PCI, total: int | None = None
) -> Gpu:
    """Build a GPU of a product, with its virtual functions enabled or not (``on``), without vGPUs."""
    of = table(name)
    count = (of.total_vfs or of.at_least or 16) if of.sriov else 0
    count = count if total is None else total
    mode: MigMode = "enabled" if mig else "disabled"
    environment: FrameworkName = (FRAMEWORKS.get(of.architecture, "vendor-vfio") if on else "") if of.sriov else "mdev"
    return Gpu(
        pci=pci,
        uuid=f"GPU-{pci}",
        index=0,
        product=name,
        pci_device=of.pci_device,
        subsystem=f"{of.subsystem}10DE" if of.subsystem else "",
        family=of.mig_family,
        mig=Mig(of.mig_family is not None, mode, mode),
        virtual=GpuVirtualization(
            framework=environment,
            driver="nvidia",
            iommu_group=38,
            group_members=(pci, f"{pci[:-1]}1"),
            total=count,
            addresses=tuple(address(n, pci) for n in range(count)),
            functions=functions(count, pci) if on and count else (),
            mixed_size=mixed if on and count else None if not count else False,
        ),
    )


def node(*gpus: Gpu, host: HostVirtualization | None = None) -> Inventory:
    there = host or HostVirtualization(
        iommu=True, vfio=True, vgpu_manager=True, sriov_manage="/usr/lib/nvidia/sriov-manage"
    )
    return Inventory(node="factory", gpus=gpus, driver="580.105.06", host=there)


def having(of: Gpu, *entries: tuple[VgpuType, int] | tuple[VgpuType, int, int | None], held: Sequence[int] = ()) -> Gpu:
    """Return the GPU with vGPUs: (type, number of its function[, place]). A VM holds the functions in ``held``."""
    made = []
    for each, number, *place in entries:
        at = address(number, of.pci) if of.virtual and of.virtual.total else of.pci
        where = place[0] if place else None
        made.append(
            Vgpu(
                function=at,
                type_id=each.id or 0,
                type=each.name,
                uuid=f"00000000-0000-4000-8000-{number:012d}",
                gpu_instance=where if each.mig_backed else None,
                placement=None if each.mig_backed else where,
                ownership_token=f"claim-{number}",
                holders=(VM,) if number in held else (),
            )
        )
    under = {v.gpu_instance: v for v in made}
    instances = tuple(
        replace(i, held=True, holders=(Holder("vgpu", under[i.id].function, under[i.id].type),)) if i.id in under else i
        for i in of.instances
    )
    return replace(of, vgpus=tuple(made), instances=instances)


def vgpus(name: str, counts: dict[str, int]) -> tuple[DesiredVgpu, ...]:
    """Build vGPU requests for types by short name (or its end) and number."""
    found = [(kind(name, short), n) for short, n in counts.items()]
    return tuple(DesiredVgpu(t.id or 0, t.name) for t, n in found for _ in range(n))


def desired_state(of: Gpu, counts: dict[str, int], mixed: bool | None = None, name: str = "wish") -> Desired:
    """Build the desired state of one GPU's vGPUs as the config reader does, with the GPU instances behind MIG-backed
    ones.
    """
    made = vgpus(of.product, counts)
    return Desired(gpus=(share(of, made, mixed),), name=name)


def share(of: Gpu, made: tuple[DesiredVgpu, ...], mixed: bool | None = None) -> DesiredGpu:
    known = table(of.product)
    functions_on = True if known.sriov else None
    types = [known.by_id[w.type_id] for w in made]
    if not any(t.mig_backed for t in types):
        mig = False if of.mig.capable else None
        return DesiredGpu(pci=of.pci, mig=mig, instances=(), vgpus=made, functions=functions_on, mixed_size=mixed)
    family = catalog.family(of.family or "")
    needed: dict[tuple[int, int, int], int] = {}
    for each in types:
        profile = family.by_id.get(each.profile_id or -1) or family.by_name[each.profile]
        key = (profile.id, each.fb_mib, each.per_instance)
        needed[key] = needed.get(key, 0) + 1
    instances = [
        DesiredInstance(p, family.by_id[p].name, (family.by_id[p].default_compute.id,))
        for (p, _, most), n in needed.items()
        for _ in range(-(-n // most))
    ]
    return DesiredGpu(
        pci=of.pci, mig=True, instances=tuple(instances), vgpus=made, functions=functions_on, mixed_size=mixed
    )
