"""One look at the kernel's side of one GPU: its functions, world, vGPUs, and who has them open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.inventory import Gpu, Stranger, Vgpu, Virtual, VirtualFunction
from aliquot.core.model.vgpu_types import VgpuTable
from aliquot.hardware.kernel import framework_detection as worlds
from aliquot.hardware.kernel import pci as bus
from aliquot.hardware.kernel import sriov
from aliquot.hardware.kernel.framework import MDEV, Found, Offer, World
from aliquot.hardware.kernel.mig_backed import with_vgpus
from aliquot.hardware.kernel.vfio_holders import Holders
from aliquot.hardware.kernel.vgpu_owners import Book, Owner
from aliquot.hardware.kernel_files import Files

if TYPE_CHECKING:
    from aliquot.hardware.kernel.driver_types import Memory

replace = msgspec.structs.replace


class Scene(msgspec.Struct, frozen=True):
    """What one look shares between GPUs: the owner map, this boot's id, the scan for holders, what was learnt before,
    and what the driver says of mixed-size mode.
    """

    files: Files
    book: Book
    boot: Callable[[], str]
    holders: Holders
    memory: Callable[[], Memory]
    mixed: Callable[[str], bool | None]


class Seen(msgspec.Struct, frozen=True):
    """A GPU with its kernel's side, the table that was extended by what the driver told (None: the catalog's will do),
    and remarks.
    """

    gpu: Gpu
    table: VgpuTable | None
    notes: tuple[str, ...]


def look(scene: Scene, gpu: Gpu) -> Seen:
    """Raises OSError and Malformed; then nothing can be said of this GPU's kernel side."""
    files, pci = scene.files, gpu.pci
    most = sriov.total(files, pci)
    links = sriov.links(files, pci) if most and sriov.count(files, pci) else ()
    addresses = sriov.predicted(files, pci, most)
    world = worlds.world(files, pci, [link.pci for link in links], bool(most))
    group = bus.group(files, pci)
    members = () if group is None else bus.members(files, group)
    functions = tuple(_function(scene, link) for link in links)
    carriers = [link.pci for link in links] if most else [pci]
    found = _found(world, functions, carriers)
    offers = _offers(scene, gpu, world, functions, carriers, found)
    types = None if world is None else _learn(scene, gpu, offers)
    numbers = {address: n for n, address in enumerate(addresses)} | {link.pci: link.number for link in links}
    mixed = scene.mixed(pci) if world is not None and not gpu.mig.enabled else None
    names = {} if types is None else types.by_id
    vgpus = tuple(
        _vgpu(scene, gpu, each, numbers.get(each.function, -1), mixed, names.get(each.type_id)) for each in found
    )
    virtual = Virtual(
        world="" if world is None else world.name,
        driver=bus.driver(files, pci),
        iommu_group=group,
        group_members=members,
        strangers=_strangers(files, pci, group, members),
        total=most,
        addresses=addresses,
        functions=functions,
        mixed=mixed,
        creatable=None if world is None else tuple(o.type_id for o in offers if o.free > 0),
        remembered=remembered(scene, gpu, addresses, vgpus),
    )
    nameless = sorted({v.type_id for v in vgpus if v.type_id not in names})
    notes = [
        f"GPU {pci} carries a vGPU of type {n}, which no table names: it is shown, but cannot be asked for"
        for n in nameless
    ]
    whole = with_vgpus(replace(gpu, vgpus=vgpus, virtual=virtual), types)
    return Seen(whole, types if types is not None and types.source == "driver" else None, tuple(notes))


def _function(scene: Scene, link: sriov.Link) -> VirtualFunction:
    driver = bus.driver(scene.files, link.pci)
    group = bus.group(scene.files, link.pci)
    if driver != bus.VFIO:
        return VirtualFunction(link.pci, link.number, driver, group)
    from aliquot.hardware.kernel.vendor_vfio import devices

    return VirtualFunction(link.pci, link.number, driver, group, scene.holders.of(devices(scene.files, link.pci)))


def _found(world: World | None, functions: Sequence[VirtualFunction], carriers: Sequence[str]) -> tuple[Found, ...]:
    """The vGPUs of the GPU, in the order of functions; a function that vfio-pci has carries none."""
    lent = {f.pci for f in functions if f.driver == bus.VFIO}
    return () if world is None else tuple(v for c in carriers if c not in lent for v in world.inspect(c))


def _offers(
    scene: Scene,
    gpu: Gpu,
    world: World | None,
    functions: Sequence[VirtualFunction],
    carriers: Sequence[str],
    found: Sequence[Found],
) -> tuple[Offer, ...]:
    """What the first free function lists: all free functions of a GPU list the same. Where none is free nothing can be
    made, but the names of mdev types can still be read.
    """
    if world is None:
        return ()
    taken = {v.function for v in found} if world.name != MDEV else set()
    lent = {f.pci for f in functions if f.driver == bus.VFIO}
    free = [c for c in carriers if c not in taken | lent]
    known = vgpu.table(gpu.pci_device, gpu.subsystem)
    ids = {} if known is None else known.by_id
    learnt = scene.memory().of(gpu)
    unknown = [c for c in carriers if c in taken]
    if not free and not unknown:
        return ()
    carrier = (free or unknown)[0]
    offers = world.list_types(carrier, lambda type_id: type_id not in ids and type_id not in learnt)
    return offers if free else tuple(replace(o, free=0) for o in offers)


def _learn(scene: Scene, gpu: Gpu, offers: Sequence[Offer]) -> VgpuTable | None:
    """The GPU's types: the catalog's, with what the driver told, now or before, in the place of what it lacks."""
    from aliquot.hardware.kernel import driver_types as table

    known, memory = vgpu.table(gpu.pci_device, gpu.subsystem), scene.memory()
    fresh = table.news(known, offers)
    if fresh:
        memory.learn(gpu, fresh)
    return table.extended(known, gpu, memory.of(gpu)) or known


def _vgpu(scene: Scene, gpu: Gpu, found: Found, number: int, mixed: bool | None, kind: vgpu.VgpuType | None) -> Vgpu:
    owner = scene.book.owner(found, scene.boot()) if scene.book.vgpus else None
    gpu_instance = found.gpu_instance if gpu.mig.enabled else None
    return Vgpu(
        function=found.function,
        type_id=found.type_id,
        type=kind.name if kind is not None else owner.type if owner and owner.type else f"type {found.type_id}",
        uuid=uuid_of(gpu, found, number, owner),
        gpu_instance=owner.gpu_instance if gpu_instance is None and owner and gpu.mig.enabled else gpu_instance,
        placement=found.placement if mixed else None,
        claim=owner.claim if owner else "",
        holders=scene.holders.of(found.devices),
    )


def uuid_of(gpu: Gpu, found: Found, number: int, owner: Owner | None) -> str:
    """The mdev's own UUID, or the recorded one, or the one that a vGPU of that function would be given."""
    if found.uuid:
        return found.uuid
    if owner is not None and owner.uuid:
        return owner.uuid
    from aliquot.core.planner.vgpu.naming import stable_uuid

    return stable_uuid(gpu, number)


def _strangers(files: Files, pci: str, group: int | None, members: Sequence[str]) -> tuple[Stranger, ...]:
    """What of the group stands in the way of a passthrough. A GPU that is alone in its group needs no such look."""
    if len(members) < 2:
        return ()
    from aliquot.hardware.kernel.vfio_binding import strangers

    return strangers(files, pci, group)


def remembered(scene: Scene, gpu: Gpu, addresses: Sequence[str], vgpus: Sequence[Vgpu]) -> tuple[Vgpu, ...]:
    """The vGPUs that a reboot took away: recorded in an earlier boot, and not there again."""
    old = [o for o in scene.book.vgpus if (o.gpu == gpu.uuid if o.gpu else o.pci == gpu.pci)]
    old = [o for o in old if o.boot != scene.boot()] if old else []
    live = {v.uuid for v in vgpus} | {v.function for v in vgpus if v.function != gpu.pci}
    moved = {o: _address(o, gpu, addresses) for o in old}
    return tuple(
        Vgpu(function, o.type_id, o.type, o.uuid)
        for o, function in moved.items()
        if o.uuid not in live and function not in live
    )


def _address(owner: Owner, gpu: Gpu, addresses: Sequence[str]) -> str:
    """Where a recorded function is now: addresses may move with a reboot, numbers do not."""
    if owner.number < 0:
        return gpu.pci
    return addresses[owner.number] if owner.number < len(addresses) else owner.function
