"""GPUs that are bound to vfio-pci: recorded before they are bound, listed while NVML does not know them, restored to
their previous drivers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import msgspec

from aliquot.core.engine.ports import Clock
from aliquot.core.model import catalog
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, GpuVirtualization, Mig
from aliquot.errors import AliquotError, BlockedError, InUseError
from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel import sriov, vfio_binding
from aliquot.hardware.kernel.reader import KernelReadContext, recorded_vgpus
from aliquot.hardware.kernel.vendor_vfio import vfio_devices
from aliquot.hardware.kernel.vgpu_owners import OwnerMap, OwnerMapFile, PassthroughRecord
from aliquot.hardware.kernel_files import KernelFiles

Suspend = Callable[[], AbstractContextManager[None]]


def absent_gpus(
    context: KernelReadContext, known_gpus: set[str], all_drivers: bool = False
) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """Return the GPUs that NVML does not know because they are passed through, and notes on those that are stuck
    without a driver. With ``all_drivers``, include GPUs that are bound to another driver or to none. Raises OSError,
    MalformedError.
    """
    files = context.files
    recorded = {h.function for h in context.owner_map.passthrough if h.function == h.pci}
    found = {*bus.vfio_gpus(files), *(p for p in recorded if files.exists(f"{bus.DEVICES}/{p}"))} - known_gpus
    others = set(bus.unmanaged_gpus(files)) - found - known_gpus if all_drivers else set()
    gpus, notes = [], []
    for pci in sorted(found | others):
        driver = bus.driver(files, pci)
        if pci in others or (all_drivers and driver not in ("", bus.VFIO, bus.DRIVER)):
            gpus.append(_gpu(context, pci, driver, passthrough=False))
            continue
        if driver not in ("", bus.VFIO):
            continue  # recorded in an earlier boot: it has its driver again, and NVML hides it for another reason
        gpus.append(_gpu(context, pci, driver))
        if not driver:
            notes.append(f"GPU {pci} has no driver: enabling or disabling passthrough was interrupted; run it again")
    return tuple(gpus), tuple(notes)


def _gpu(context: KernelReadContext, pci: str, driver: str, passthrough: bool = True) -> Gpu:
    files = context.files
    record = context.owner_map.passthrough_of(pci) or PassthroughRecord(pci, {})
    identity = bus.identity(files, pci)
    device, subsystem = identity.pci_device, identity.subsystem
    family = catalog.family_of_device(device, subsystem)
    group, max_functions = bus.group(files, pci), sriov.total(files, pci)
    addresses = sriov.function_addresses(files, pci, max_functions)
    bare = Gpu(
        pci=pci,
        uuid=record.uuid,
        index=-1,
        product=record.product or _product(device, subsystem),
        pci_device=device,
        subsystem=subsystem,
        family=family,
        mig=Mig(capable=family is not None),
        holders=context.holders.of(vfio_devices(files, pci)) if driver == bus.VFIO else (),
        passthrough=passthrough,
    )
    virtual = GpuVirtualization(
        driver=driver,
        iommu_group=group,
        group_members=() if group is None else bus.members(files, group),
        group_peers=vfio_binding.group_peers(files, pci, group),
        total=max_functions,
        addresses=addresses,
        recorded_vgpus=recorded_vgpus(context, bare, addresses, ()),
        was_mig=record.mig,
    )
    return msgspec.structs.replace(bare, virtual=virtual)


def _product(device: str, subsystem: str) -> str:
    """Return a name for a GPU that another program passed through: the board's name if several products share the
    device id.
    """
    types = vgpu.table(device, subsystem)
    if types is not None:
        return types.name
    names = [d.name for d in catalog.devices() if d.pci_device.lower() == device.lower()]
    return names[0] if names else f"NVIDIA GPU {device}"


def enable_passthrough(
    files: KernelFiles, owners: OwnerMapFile, clock: Clock, gpu: Gpu, function: str, boot: str, *, suspend: Suspend
) -> None:
    """Bind a GPU, as it was just read, or one of its virtual functions to vfio-pci. A record of its previous state is
    written to disk first. Raises InUseError, BlockedError, HardwareError.
    """
    address = function or gpu.pci
    _check_can_enable(gpu, function)
    others = vfio_binding.companions(files, address)
    drivers = {each: bus.driver(files, each) for each in (address, *(m.pci for m in others))}
    record = PassthroughRecord(address, drivers, gpu.pci, gpu.uuid, gpu.product, gpu.mig.enabled, boot)

    def edit(owner_map: OwnerMap) -> OwnerMap:
        previous = owner_map.passthrough_of(address)
        # If an interrupted request is repeated, the first record has the drivers from before it.
        interrupted = previous is not None and previous.boot == boot and drivers[address] in ("", bus.VFIO)
        return owner_map if interrupted else owner_map.with_passthrough(record)

    owners.change(edit)
    try:
        with suspend():
            vfio_binding.bind_to_vfio(files, clock, address, [m.pci for m in others])
    except AliquotError:
        if bus.driver(files, address) == drivers[address] != "":
            with suppress(AliquotError):
                owners.change(lambda owner_map: owner_map.without_passthrough(address))
        raise


@contextmanager
def write_ahead_record(files: KernelFiles, owners: OwnerMapFile, gpu: Gpu, boot: str) -> Iterator[None]:
    """Keep a record of a GPU on disk while a program unbinds it from its driver. If this process is killed meanwhile,
    the record lists the GPU, which otherwise no tool would list. The record is removed when the GPU has a driver again.
    """
    before = bus.driver(files, gpu.pci)
    record = PassthroughRecord(gpu.pci, {gpu.pci: before}, gpu.pci, gpu.uuid, gpu.product, gpu.mig.enabled, boot)
    owners.change(lambda owner_map: owner_map.with_passthrough(record))
    try:
        yield
    finally:
        # A record that a full disk leaves behind is harmless: a GPU that has its driver is not listed because of it.
        with suppress(AliquotError):
            if bus.driver(files, gpu.pci):
                owners.change(lambda owner_map: owner_map.without_passthrough(gpu.pci))


def disable_passthrough(files: KernelFiles, owners: OwnerMapFile, pci: str, function: str, suspend: Suspend) -> None:
    """Return a function from vfio-pci to the drivers that it and its companions had. Raises
    InUseError, HardwareError.
    """
    address = function or pci
    if not function and sriov.count(files, pci):
        raise InUseError(
            f"GPU {pci} is bound to vfio-pci and has virtual functions: disabling passthrough would remove them",
            details=(f"{bus.attribute(pci, 'sriov_numvfs')} is not 0",),
            next_step=f"disable them (write 0 to sriov_numvfs), then run: aliquot passthrough disable {pci}",
        )
    record = owners.load()[0].passthrough_of(address)
    if record is not None:
        drivers: dict[str, str | None] = dict(record.drivers)
    else:
        group = bus.group(files, address)
        members = () if group is None else bus.members(files, group)
        companions = [
            p for p in members if vfio_binding.same_board(files, address, p) and bus.driver(files, p) == bus.VFIO
        ]
        drivers = {address: None, **dict.fromkeys(companions)}
    with suspend():
        vfio_binding.restore_drivers(files, address, {p: d if d != bus.VFIO else None for p, d in drivers.items()})
    owners.change(lambda owner_map: owner_map.without_passthrough(address))


def _check_can_enable(gpu: Gpu, function: str) -> None:
    """Raise InUseError or BlockedError if a function cannot be passed through."""
    functions = gpu.virtual.functions if gpu.virtual is not None else ()
    vgpus = [v for v in gpu.vgpus if not function or v.function == function]
    if function and function not in {f.pci for f in functions}:
        raise BlockedError(
            f"{function} is not a virtual function of GPU {gpu.pci}",
            code="NO_FUNCTION",
            next_step=f"aliquot vgpu enable {gpu.pci}",
        )
    if vgpus:
        raise InUseError(
            f"{function or gpu.pci} carries {len(vgpus)} vGPU{'s' if len(vgpus) > 1 else ''}",
            details=tuple(f"{v.type} on {v.function}" for v in vgpus),
            next_step=f"aliquot show {gpu.pci}",
        )
    if not function and functions:
        raise InUseError(
            f"GPU {gpu.pci} has {len(functions)} virtual functions, which passthrough would remove",
            next_step=f"aliquot vgpu disable {gpu.pci}",
        )
    if not function and gpu.holders and not gpu.passthrough:
        raise InUseError(
            f"GPU {gpu.pci} is held by {', '.join(map(str, gpu.holders))}",
            next_step="end that work, then run the command again",
        )
