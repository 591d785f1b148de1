"""GPUs that vfio-pci has: recorded before they go, listed while NVML does not know them, taken back as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

import msgspec

from aliquot.core.engine.ports import Clock
from aliquot.core.model import catalog
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, Mig, Virtual
from aliquot.errors import AliquotError, BlockedError, InUseError
from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel import sriov
from aliquot.hardware.kernel import vfio_binding as handing
from aliquot.hardware.kernel.reader import Scene, remembered
from aliquot.hardware.kernel.vendor_vfio import devices
from aliquot.hardware.kernel.vgpu_owners import Book, Handed, Owners
from aliquot.hardware.kernel_files import Files

Suspend = Callable[[], AbstractContextManager[None]]


def absent_gpus(scene: Scene, known: set[str], everything: bool = False) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The GPUs that NVML does not know because they were handed out, and remarks on those that hang in between;
    with ``everything`` also those that another driver has, or none. Raises OSError, Malformed.
    """
    files = scene.files
    recorded = {h.function for h in scene.book.handed if h.function == h.pci}
    found = {*bus.handed_out(files), *(p for p in recorded if files.exists(f"{bus.DEVICES}/{p}"))} - known
    others = set(bus.untaken(files)) - found - known if everything else set()
    gpus, notes = [], []
    for pci in sorted(found | others):
        driver = bus.driver(files, pci)
        if pci in others or (everything and driver not in ("", bus.VFIO, bus.DRIVER)):
            gpus.append(_gpu(scene, pci, driver, passthrough=False))
            continue
        if driver not in ("", bus.VFIO):
            continue  # recorded in an earlier boot: it has its driver again, and NVML has its own reasons
        gpus.append(_gpu(scene, pci, driver))
        if not driver:
            notes.append(f"GPU {pci} has no driver: handing it out, or taking it back, was cut off; ask for it again")
    return tuple(gpus), tuple(notes)


def _gpu(scene: Scene, pci: str, driver: str, passthrough: bool = True) -> Gpu:
    files = scene.files
    record = scene.book.of_function(pci) or Handed(pci, {})
    identity = bus.identity(files, pci)
    device, subsystem = identity.pci_device, identity.subsystem
    family = catalog.family_of_device(device, subsystem)
    group, most = bus.group(files, pci), sriov.total(files, pci)
    addresses = sriov.predicted(files, pci, most)
    bare = Gpu(
        pci=pci,
        uuid=record.uuid,
        index=-1,
        product=record.product or _product(device, subsystem),
        pci_device=device,
        subsystem=subsystem,
        family=family,
        mig=Mig(capable=family is not None),
        holders=scene.holders.of(devices(files, pci)) if driver == bus.VFIO else (),
        passthrough=passthrough,
    )
    virtual = Virtual(
        driver=driver,
        iommu_group=group,
        group_members=() if group is None else bus.members(files, group),
        strangers=handing.strangers(files, pci, group),
        total=most,
        addresses=addresses,
        remembered=remembered(scene, bare, addresses, ()),
        was_mig=record.mig,
    )
    return msgspec.structs.replace(bare, virtual=virtual)


def _product(device: str, subsystem: str) -> str:
    """A name for a GPU that somebody else handed out: by its board where one id serves several."""
    types = vgpu.table(device, subsystem)
    if types is not None:
        return types.name
    names = [d.name for d in catalog.devices() if d.pci_device.lower() == device.lower()]
    return names[0] if names else f"NVIDIA GPU {device}"


def hand_out(files: Files, owners: Owners, clock: Clock, gpu: Gpu, function: str, boot: str, suspend: Suspend) -> None:
    """Give a GPU, as it was just read, or one of its virtual functions to vfio-pci. The record of what it was is on
    disk before. Raises InUseError, BlockedError, HardwareError.
    """
    what = function or gpu.pci
    _refuse(gpu, function)
    others = handing.companions(files, what)
    drivers = {each: bus.driver(files, each) for each in (what, *(m.pci for m in others))}
    record = Handed(what, drivers, gpu.pci, gpu.uuid, gpu.product, gpu.mig.enabled, boot)

    def edit(book: Book) -> Book:
        former = book.of_function(what)
        # Cut off half-way and asked again: what the function had before is in the first record.
        cut_off = former is not None and former.boot == boot and drivers[what] in ("", bus.VFIO)
        return book if cut_off else book.with_handed(record)

    owners.change(edit)
    try:
        with suspend():
            handing.give(files, clock, what, [m.pci for m in others])
    except AliquotError:
        if bus.driver(files, what) == drivers[what] != "":
            with suppress(AliquotError):
                owners.change(lambda book: book.without_handed(what))
        raise


@contextmanager
def on_record(files: Files, owners: Owners, gpu: Gpu, boot: str) -> Iterator[None]:
    """For a program that takes a GPU from its driver for a while: killed with it, we would leave a GPU that nobody
    lists. The record that it was here is on disk before, and goes when it has a driver again.
    """
    before = bus.driver(files, gpu.pci)
    record = Handed(gpu.pci, {gpu.pci: before}, gpu.pci, gpu.uuid, gpu.product, gpu.mig.enabled, boot)
    owners.change(lambda book: book.with_handed(record))
    try:
        yield
    finally:
        # One that stays by a full disk does no harm: a GPU that has its driver is not listed for its sake.
        with suppress(AliquotError):
            if bus.driver(files, gpu.pci):
                owners.change(lambda book: book.without_handed(gpu.pci))


def hand_back(files: Files, owners: Owners, pci: str, function: str, suspend: Suspend) -> None:
    """Give a function that vfio-pci has to the drivers that it and its companions had. Raises InUseError,
    HardwareError.
    """
    what = function or pci
    if not function and sriov.count(files, pci):
        raise InUseError(
            f"GPU {pci} has virtual functions while vfio-pci has it: taking it back would end them",
            details=(f"{bus.attribute(pci, 'sriov_numvfs')} is not 0",),
            next_step=f"whoever switched them on switches them off again, then: aliquot passthrough disable {pci}",
        )
    record = owners.load()[0].of_function(what)
    if record is not None:
        drivers: dict[str, str | None] = dict(record.drivers)
    else:
        group = bus.group(files, what)
        members = () if group is None else bus.members(files, group)
        more = [p for p in members if handing.beside(files, what, p) and bus.driver(files, p) == bus.VFIO]
        drivers = {what: None, **dict.fromkeys(more)}
    with suspend():
        handing.take_back(files, what, {p: d if d != bus.VFIO else None for p, d in drivers.items()})
    owners.change(lambda book: book.without_handed(what))


def _refuse(gpu: Gpu, function: str) -> None:
    """What is in the way of handing it out. Raises InUseError, BlockedError."""
    functions = gpu.virtual.functions if gpu.virtual is not None else ()
    carried = [v for v in gpu.vgpus if not function or v.function == function]
    if function and function not in {f.pci for f in functions}:
        raise BlockedError(
            f"{function} is no virtual function of GPU {gpu.pci}", next_step=f"aliquot vgpu enable {gpu.pci}"
        )
    if carried:
        raise InUseError(
            f"{function or gpu.pci} carries {len(carried)} vGPU{'s' if len(carried) > 1 else ''}",
            details=tuple(f"{v.type} on {v.function}" for v in carried),
            next_step=f"aliquot show {gpu.pci}",
        )
    if not function and functions:
        raise InUseError(
            f"GPU {gpu.pci} has {len(functions)} virtual functions: they would be lost",
            next_step=f"aliquot vgpu disable {gpu.pci}",
        )
    if not function and gpu.holders and not gpu.passthrough:
        raise InUseError(
            f"GPU {gpu.pci} is held by {', '.join(map(str, gpu.holders))}",
            next_step="end that work, then run the command again",
        )
