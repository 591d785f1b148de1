"""Reading the kernel's side of one GPU: its functions, framework, vGPUs and their holders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, GpuVirtualization, IommuGroupPeer, Vgpu, VirtualFunction
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel import sriov
from aliquot.hardware.kernel.framework import KernelVgpu, VgpuFramework, VgpuTypeOffer
from aliquot.hardware.kernel.framework_detection import detect_framework
from aliquot.hardware.kernel.mig_backed import with_vgpu_holders
from aliquot.hardware.kernel.vfio_holders import Holders
from aliquot.hardware.kernel.vgpu_owners import OwnerMap, VgpuOwner
from aliquot.hardware.kernel_files import KernelFiles

if TYPE_CHECKING:
    from aliquot.hardware.kernel.driver_types import LearnedTypes

replace = msgspec.structs.replace


class KernelReadContext(msgspec.Struct, frozen=True):
    """Values that one read shares between GPUs."""

    files: KernelFiles
    owner_map: OwnerMap
    boot: Callable[[], str]
    holders: Holders
    learned_types: Callable[[], LearnedTypes]
    mixed_size: Callable[[str], bool | None]
    """Returns whether the driver has mixed-size mode on for a GPU."""


class GpuKernelState(msgspec.Struct, frozen=True):
    """A GPU with its kernel's side, and notes."""

    gpu: Gpu
    table: VgpuTable | None
    """The table that was extended with the driver's types; None if the catalog's suffices."""
    notes: tuple[str, ...]


def read_gpu_state(context: KernelReadContext, gpu: Gpu) -> GpuKernelState:
    """Read the kernel's side of a GPU. Raises OSError and MalformedError; then nothing is known about it."""
    files, pci = context.files, gpu.pci
    max_functions = sriov.total(files, pci)
    links = sriov.links(files, pci) if max_functions and sriov.count(files, pci) else ()
    addresses = sriov.function_addresses(files, pci, max_functions)
    framework = detect_framework(files, pci, [link.pci for link in links], bool(max_functions))
    group = bus.group(files, pci)
    members = () if group is None else bus.members(files, group)
    functions = tuple(_function(context, link) for link in links)
    vgpu_functions = [link.pci for link in links] if max_functions else [pci]
    kernel_vgpus = _kernel_vgpus(framework, functions, vgpu_functions)
    offers = _offers(context, gpu, framework, functions, vgpu_functions, kernel_vgpus)
    types = None if framework is None else _learn(context, gpu, offers)
    numbers = {address: n for n, address in enumerate(addresses)} | {link.pci: link.number for link in links}
    mixed_size = context.mixed_size(pci) if framework is not None and not gpu.mig.enabled else None
    names = {} if types is None else types.by_id
    vgpus = tuple(
        _vgpu(context, gpu, each, numbers.get(each.function, -1), mixed_size, names.get(each.type_id))
        for each in kernel_vgpus
    )
    virtual = GpuVirtualization(
        framework="" if framework is None else framework.name,
        driver=bus.driver(files, pci),
        iommu_group=group,
        group_members=members,
        group_peers=_group_peers(files, pci, group, members),
        total=max_functions,
        addresses=addresses,
        functions=functions,
        mixed_size=mixed_size,
        creatable=None if framework is None else tuple(o.type_id for o in offers if o.available > 0),
        recorded_vgpus=recorded_vgpus(context, gpu, addresses, vgpus),
    )
    notes = tuple(
        f"GPU {pci} carries a vGPU of type {n}, which no table names: it is shown, but cannot be requested"
        for n in sorted({v.type_id for v in vgpus} - names.keys())
    )
    learnt = types if types is not None and types.source == "driver" else None
    return GpuKernelState(with_vgpu_holders(replace(gpu, vgpus=vgpus, virtual=virtual), types), learnt, notes)


def _function(context: KernelReadContext, link: sriov.VirtualFunctionLink) -> VirtualFunction:
    driver = bus.driver(context.files, link.pci)
    group = bus.group(context.files, link.pci)
    if driver != bus.VFIO:
        return VirtualFunction(link.pci, link.number, driver, group)
    from aliquot.hardware.kernel.vendor_vfio import vfio_devices

    return VirtualFunction(
        link.pci, link.number, driver, group, context.holders.of(vfio_devices(context.files, link.pci))
    )


def _kernel_vgpus(
    framework: VgpuFramework | None, functions: Sequence[VirtualFunction], vgpu_functions: Sequence[str]
) -> tuple[KernelVgpu, ...]:
    """Return the vGPUs of the GPU, in the order of functions. A function that is bound to vfio-pci carries none."""
    on_vfio = {f.pci for f in functions if f.driver == bus.VFIO}
    return (
        () if framework is None else tuple(v for c in vgpu_functions if c not in on_vfio for v in framework.inspect(c))
    )


def _offers(
    context: KernelReadContext,
    gpu: Gpu,
    framework: VgpuFramework | None,
    functions: Sequence[VirtualFunction],
    vgpu_functions: Sequence[str],
    kernel_vgpus: Sequence[KernelVgpu],
) -> tuple[VgpuTypeOffer, ...]:
    """Return the types that the first free function lists: all free functions of a GPU list the same. If none is free,
    nothing can be created, but the names of mdev types can still be read.
    """
    if framework is None:
        return ()
    occupied = {v.function for v in kernel_vgpus} if framework.name != "mdev" else set()
    on_vfio = {f.pci for f in functions if f.driver == bus.VFIO}
    available = [c for c in vgpu_functions if c not in occupied | on_vfio]
    catalog_table = vgpu.table(gpu.pci_device, gpu.subsystem)
    ids = {} if catalog_table is None else catalog_table.by_id
    learned = context.learned_types().for_gpu(gpu)
    unknown = [c for c in vgpu_functions if c in occupied]
    if not available and not unknown:
        return ()
    vgpu_function = (available or unknown)[0]
    offers = framework.list_types(vgpu_function, lambda type_id: type_id not in ids and type_id not in learned)
    return offers if available else tuple(replace(o, available=0) for o in offers)


def _learn(context: KernelReadContext, gpu: Gpu, offers: Sequence[VgpuTypeOffer]) -> VgpuTable | None:
    """Return the GPU's types: the catalog's, completed with the types that the driver reported now or before."""
    from aliquot.hardware.kernel import driver_types as table

    catalog_table, learned = vgpu.table(gpu.pci_device, gpu.subsystem), context.learned_types()
    new_offers = table.new_offers(catalog_table, offers)
    if new_offers:
        learned.learn(gpu, new_offers)
    return table.with_driver_types(catalog_table, gpu, learned.for_gpu(gpu)) or catalog_table


def _vgpu(
    context: KernelReadContext,
    gpu: Gpu,
    kernel_vgpu: KernelVgpu,
    number: int,
    mixed_size: bool | None,
    vgpu_type: vgpu.VgpuType | None,
) -> Vgpu:
    owner = context.owner_map.find_owner(kernel_vgpu, context.boot()) if context.owner_map.vgpus else None
    gpu_instance = kernel_vgpu.gpu_instance if gpu.mig.enabled else None
    inside = None if gpu_instance is None else gpu.instance(gpu_instance)
    return Vgpu(
        function=kernel_vgpu.function,
        type_id=kernel_vgpu.type_id,
        type=vgpu_type.name
        if vgpu_type is not None
        else owner.type
        if owner and owner.type
        else f"type {kernel_vgpu.type_id}",
        uuid=uuid_of(gpu, kernel_vgpu, number, owner),
        gpu_instance=owner.gpu_instance if gpu_instance is None and owner and gpu.mig.enabled else gpu_instance,
        placement=kernel_vgpu.placement if mixed_size or (inside is not None and inside.mixed_size) else None,
        ownership_token=owner.ownership_token if owner else "",
        holders=context.holders.of(kernel_vgpu.devices),
        parameters=kernel_vgpu.parameters,
    )


def uuid_of(gpu: Gpu, kernel_vgpu: KernelVgpu, number: int, owner: VgpuOwner | None) -> str:
    """Return the mdev's own UUID, or the recorded one, or the one that a new vGPU of that function would get."""
    if kernel_vgpu.uuid:
        return kernel_vgpu.uuid
    if owner is not None and owner.uuid:
        return owner.uuid
    from aliquot.core.planner.vgpu.naming import stable_uuid

    return stable_uuid(gpu, number)


def _group_peers(files: KernelFiles, pci: str, group: int | None, members: Sequence[str]) -> tuple[IommuGroupPeer, ...]:
    """Return the group members that prevent a passthrough. A GPU that is alone in its group is not scanned."""
    if len(members) < 2:
        return ()
    from aliquot.hardware.kernel.vfio_binding import group_peers

    return group_peers(files, pci, group)


def recorded_vgpus(
    context: KernelReadContext, gpu: Gpu, addresses: Sequence[str], vgpus: Sequence[Vgpu]
) -> tuple[Vgpu, ...]:
    """Return the vGPUs that a reboot removed: recorded in an earlier boot and not created again."""
    recorded = [o for o in context.owner_map.vgpus if (o.gpu == gpu.uuid if o.gpu else o.pci == gpu.pci)]
    recorded = [o for o in recorded if o.boot != context.boot()] if recorded else []
    live = {v.uuid for v in vgpus} | {v.function for v in vgpus if v.function != gpu.pci}
    current_functions = {o: _current_address(o, gpu, addresses) for o in recorded}
    return tuple(
        Vgpu(function, o.type_id, o.type, o.uuid)
        for o, function in current_functions.items()
        if o.uuid not in live and function not in live
    )


def _current_address(owner: VgpuOwner, gpu: Gpu, addresses: Sequence[str]) -> str:
    """Return the current address of a recorded function. Addresses may change with a reboot, numbers do not."""
    if owner.number < 0:
        return gpu.pci
    return addresses[owner.number] if owner.number < len(addresses) else owner.function
