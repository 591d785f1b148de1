"""The VMs of one libvirt host as rows, and previews of attaching and detaching devices. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from aliquot.core.model.inventory import Gpu, Inventory, Vgpu
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard.change_requests import AttachDevices, DetachDevices
from aliquot.dashboard.local.previews import Address, obstacle
from aliquot.dashboard.view_models import ActionLine, ChangePreview, Obstacle, VmDeviceRow, VmRow
from aliquot.errors import BlockedError
from aliquot.libvirt import attach
from aliquot.libvirt.check import check
from aliquot.libvirt.choose import VmDeviceRequest, holder
from aliquot.libvirt.device_rules import VmContext
from aliquot.libvirt.identify import IdentifiedDevice, hostdev_of, identify_device, vgpus, vm_by_device
from aliquot.libvirt.models import PCI, Hostdev, LibvirtDomain


class VmChange(msgspec.Struct, frozen=True):
    """The change that a preview of a VM executes."""

    node: str
    request: AttachDevices | DetachDevices
    change: attach.DeviceChange


def vm_rows(inventory: Inventory, around: VmContext) -> tuple[VmRow, ...]:
    """Build a row for each domain, sorted by name."""
    free = tuple(_free(inventory, around.domains))
    return tuple(_vm_row(inventory, d, around, free) for d in sorted(around.domains, key=lambda domain: domain.name))


def _vm_row(inventory: Inventory, domain: LibvirtDomain, around: VmContext, free: tuple[VmDeviceRow, ...]) -> VmRow:
    report = check(inventory, domain, around)
    known = [identify_device(inventory, h) for h in domain.hostdevs]
    return VmRow(
        name=domain.name,
        namespace="",
        node=inventory.node,
        running=domain.running,
        devices=tuple(_device(inventory, k) for k in known),
        free=free,
        warnings=tuple(b.message for b in report.all_problems) + (report.notes if known else ()),
        why_not="" if domain.persistent else "it is transient: a change would be lost when it shuts down",
    )


def _device(inventory: Inventory, known: IdentifiedDevice) -> VmDeviceRow:
    gpu, vgpu = known.gpu, known.vgpu
    if gpu is None:
        return VmDeviceRow(known.hostdev.key, inventory.node, known.hostdev.shown)
    what = shares.short(vgpu.type) if vgpu else "whole GPU" if known.whole_gpu else "virtual function"
    return VmDeviceRow(
        known.hostdev.key, inventory.node, what, gpu.pci, several=_several(inventory, gpu, vgpu) if vgpu else None
    )


def _several(inventory: Inventory, gpu: Gpu, vgpu: Vgpu) -> bool | None:
    table = inventory.vgpu_table(gpu)
    kind = table.by_id.get(vgpu.type_id) if table else None
    return kind.per_vm > 1 if kind is not None else None


def _free(inventory: Inventory, domains: Sequence[LibvirtDomain]) -> Iterator[VmDeviceRow]:
    """Yield vGPUs and devices bound to vfio-pci that no VM definition contains and no process has open."""
    busy = vm_by_device(tuple(domains))
    for gpu, vgpu in vgpus(inventory):
        known = IdentifiedDevice(hostdev_of(gpu, vgpu), gpu=gpu, vgpu=vgpu)
        if holder(known, busy) is None:
            yield _device(inventory, known)
    for gpu in inventory.gpus:
        vfio_bound = [f.pci for f in (gpu.virtual.functions if gpu.virtual else ()) if f.driver == "vfio-pci"]
        for address in [*([gpu.pci] if gpu.passthrough else []), *vfio_bound]:
            known = identify_device(inventory, Hostdev(PCI, address=address))
            if holder(known, busy) is None:
                yield _device(inventory, known)


# -- previews


def preview(
    request: AttachDevices | DetachDevices, inventory: Inventory, around: VmContext, address: Address
) -> ChangePreview:
    """Preview a change of a VM. Raises AliquotError for an invalid request: an unknown VM, a duplicate device."""
    domain = attach.find_domain(around.domains, request.vm)
    words = VmDeviceRequest(devices=request.devices)
    verb = "attach" if isinstance(request, AttachDevices) else "detach"
    device_text = request.devices[0] if len(request.devices) == 1 else f"{len(request.devices)} devices"
    title = f"{verb.capitalize()} {device_text} {'to' if verb == 'attach' else 'from'} {domain.name}"
    try:
        where = attach.change_target(domain, live=False, config=False)
        if isinstance(request, AttachDevices):
            change = attach.plan_attach(inventory, domain, words, where, around)
        else:
            change = attach.plan_detach(inventory, domain, words, where, all_devices=False)
    except BlockedError as error:
        refusal = Obstacle(error.code, error.brief, inventory.node, suggestion="; ".join(error.details))
        step = address(error.next_step, inventory.node) if error.next_step else ""
        return ChangePreview(title, (inventory.node,), obstacles=(msgspec.structs.replace(refusal, next_step=step),))
    obstacles = tuple(obstacle(inventory.node, b, address) for b in change.blockers)
    every = list(zip(change.devices, change.descriptions, strict=True))
    actions = tuple(ActionLine(inventory.node, _gpu(inventory, h), verb, "", what, h.shown) for h, what in every)
    return ChangePreview(
        title,
        (inventory.node,),
        actions=() if obstacles else actions,
        obstacles=obstacles,
        summary="" if obstacles else f"{len(actions)} to {verb}",
        notes=change.notes,
        warnings=tuple(
            f"{h.shown} gets the boot display (ramFB): it shows the guest's screen until its driver starts"
            for h, _ in every
            if h.ramfb
        ),
        secret=VmChange(inventory.node, request, change),
    )


def _gpu(inventory: Inventory, hostdev: Hostdev) -> str:
    known = identify_device(inventory, hostdev)
    return known.gpu.pci if known.gpu else ""
