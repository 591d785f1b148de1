"""The virtual machines of one host as the page shows them, and what attaching devices comes to. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard.change_requests import Attach, Detach
from aliquot.dashboard.local.previews import Address, obstacle
from aliquot.dashboard.view_models import Act, Device, MachineRow, Obstacle, Preview
from aliquot.errors import BlockedError
from aliquot.libvirt import attach
from aliquot.libvirt.check import check
from aliquot.libvirt.choose import Ask, holder
from aliquot.libvirt.device_rules import Around
from aliquot.libvirt.identify import Known, hostdev_of, know, users, vgpus
from aliquot.libvirt.models import PCI, Domain, Hostdev


class Guest(msgspec.Struct, frozen=True):
    """What a preview of a machine is made of, and carried out by."""

    node: str
    ask: Attach | Detach
    change: attach.Change


def machines(inventory: Inventory, around: Around) -> tuple[MachineRow, ...]:
    """A row for each domain, by name."""
    free = tuple(_free(inventory, around.domains))
    return tuple(_machine(inventory, d, around, free) for d in sorted(around.domains, key=lambda d: d.name))


def _machine(inventory: Inventory, domain: Domain, around: Around, free: tuple[Device, ...]) -> MachineRow:
    report = check(inventory, domain, around)
    known = [know(inventory, h) for h in domain.hostdevs]
    return MachineRow(
        name=domain.name,
        namespace="",
        node=inventory.node,
        running=domain.running,
        devices=tuple(_device(inventory, k) for k in known),
        free=free,
        warnings=tuple(b.message for b in report.every) + (report.notes if known else ()),
        why_not="" if domain.persistent else "it has no definition: what it has ends when it is shut down",
    )


def _device(inventory: Inventory, known: Known) -> Device:
    gpu, vgpu = known.gpu, known.vgpu
    if gpu is None:
        return Device(known.hostdev.key, inventory.node, known.hostdev.shown)
    what = shares.short(vgpu.type) if vgpu else "whole GPU" if known.whole else "virtual function"
    return Device(
        known.hostdev.key, inventory.node, what, gpu.pci, several=_several(inventory, gpu, vgpu) if vgpu else None
    )


def _several(inventory: Inventory, gpu: Gpu, vgpu: Vgpu) -> bool | None:
    table = inventory.vgpu_table(gpu)
    kind = table.by_id.get(vgpu.type_id) if table else None
    return kind.per_vm > 1 if kind is not None else None


def _free(inventory: Inventory, domains: Sequence[Domain]) -> Iterator[Device]:
    """vGPUs, and what vfio-pci has, that no machine has in its definition and nobody has open."""
    busy = users(tuple(domains))
    for gpu, vgpu in vgpus(inventory):
        known = Known(hostdev_of(gpu, vgpu), gpu=gpu, vgpu=vgpu)
        if holder(known, busy) is None:
            yield _device(inventory, known)
    for gpu in inventory.gpus:
        handed = [f.pci for f in (gpu.virtual.functions if gpu.virtual else ()) if f.driver == "vfio-pci"]
        for address in [*([gpu.pci] if gpu.passthrough else []), *handed]:
            known = know(inventory, Hostdev(PCI, address=address))
            if holder(known, busy) is None:
                yield _device(inventory, known)


# -- what an ask comes to


def preview(ask: Attach | Detach, inventory: Inventory, around: Around, address: Address) -> Preview:
    """Raises AliquotError for what is wrong on every machine: no such VM, a device that is named twice."""
    domain = attach.find(around.domains, ask.machine)
    words = Ask(devices=ask.devices)
    verb = "attach" if isinstance(ask, Attach) else "detach"
    some = ask.devices[0] if len(ask.devices) == 1 else f"{len(ask.devices)} devices"
    title = f"{verb.capitalize()} {some} {'to' if verb == 'attach' else 'from'} {domain.name}"
    try:
        where = attach.target(domain, live=False, config=False)
        if isinstance(ask, Attach):
            change = attach.attaching(inventory, domain, words, where, around)
        else:
            change = attach.detaching(inventory, domain, words, where, every=False)
    except BlockedError as error:
        said = Obstacle(error.code, error.brief, inventory.node, suggestion="; ".join(error.details))
        step = address(error.next_step, inventory.node) if error.next_step else ""
        return Preview(title, (inventory.node,), obstacles=(msgspec.structs.replace(said, next_step=step),))
    obstacles = tuple(obstacle(inventory.node, b, address) for b in change.blockers)
    every = list(zip(change.devices, change.what, strict=True))
    acts = tuple(Act(inventory.node, _gpu(inventory, h), verb, "", what, h.shown) for h, what in every)
    return Preview(
        title,
        (inventory.node,),
        acts=() if obstacles else acts,
        obstacles=obstacles,
        summary="" if obstacles else f"{len(acts)} to {verb}",
        notes=change.notes,
        warnings=tuple(
            f"{h.shown} gets ramFB: it shows the guest's screen before its driver runs" for h, _ in every if h.ramfb
        ),
        secret=Guest(inventory.node, ask, change),
    )


def _gpu(inventory: Inventory, hostdev: Hostdev) -> str:
    known = know(inventory, hostdev)
    return known.gpu.pci if known.gpu else ""
