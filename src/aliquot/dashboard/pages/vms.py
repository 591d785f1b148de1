"""The page of VMs: their devices, and devices that can be attached."""

from __future__ import annotations

import msgspec

from aliquot.dashboard import formatting as words
from aliquot.dashboard.page import PageContent, Region, Visit
from aliquot.dashboard.pages.shared import FEW, first, missing, part, refusals, sentences
from aliquot.dashboard.view_models import SIMULATOR, VmDeviceRow, VmRow

MOST = 48
"""The number of VMs on one page."""
SEVERAL = "a VM can have only one of this type"
NOT_BESIDE = "cannot be combined with the VM's devices: a VM can have only one of this type"

RAMFB = "Only one vGPU of a VM can have the boot display (ramFB). A VM with two of them does not start."


class DeviceChoice(msgspec.Struct, frozen=True):
    """A device as text. ``rule`` is a restriction to consider before it is selected."""

    value: str
    id: str
    label: str
    rule: str = ""
    closed: bool = False


class VmCard(msgspec.Struct, frozen=True):
    """A VM as text. ``rules`` are restrictions shown before a change."""

    id: str
    name: str
    namespace: str
    node: str
    shown: str
    where: str
    state: str
    running: bool
    devices: tuple[DeviceChoice, ...]
    free: tuple[DeviceChoice, ...]
    rules: tuple[str, ...]
    why_not: str


def vm_card(row: VmRow) -> VmCard:
    shown = f"{row.namespace}/{row.name}" if row.namespace else row.name
    return VmCard(
        id=f"vm-{words.key(f'{row.node}/{row.namespace}/{row.name}')}",
        name=row.name,
        namespace=row.namespace,
        node=row.node,
        shown=words.clean(shown),
        where=words.clean(row.node) or "no node yet",
        state="running" if row.running else "stopped",
        running=row.running,
        devices=tuple(_device_choice(d, "has") for d in row.devices),
        free=tuple(_free(d, row.devices) for d in row.free),
        rules=rules(row),
        why_not=words.clean(row.why_not, 300),
    )


def _device_choice(device: VmDeviceRow, word: str) -> DeviceChoice:
    parent = f" of GPU {words.clean(device.parent)}" if device.parent else ""
    key = words.key(f"{word}/{device.node}/{device.id}")
    return DeviceChoice(device.id, key, f"{words.clean(device.type)}{parent} ({words.clean(device.id)})")


def _free(device: VmDeviceRow, attached: tuple[VmDeviceRow, ...]) -> DeviceChoice:
    offer = _device_choice(device, "free")
    if device.several is not False:
        return offer
    return msgspec.structs.replace(offer, rule=NOT_BESIDE if attached else SEVERAL, closed=bool(attached))


def rules(row: VmRow) -> tuple[str, ...]:
    """Return the restrictions for the VM as a whole."""
    notes = [words.clean(text, 400) for text in row.warnings]
    if len(row.free) + len(row.devices) > 1 and row.free and not any("ramfb" in text.casefold() for text in notes):
        notes.append(RAMFB)
    return tuple(notes)


async def show(visit: Visit) -> PageContent:
    virtual = visit.source.virtual
    may, lacks, none = await refusals(visit, ("attach", "detach")), missing(virtual), sentences(virtual.no_vms)
    permissions = tuple(may.items())
    found, pager = part(visit, "/machines", virtual.vms, MOST, lambda row: f"{row.namespace}/{row.name} {row.node}")
    shown = [(row, vm_card(row)) for row in found]
    no_vm = ("There are no VMs.",)
    if visit.source.kind == SIMULATOR:
        lacks, none, no_vm = (), (), none or no_vm  # this is not an error and needs no action
    known = {"missing": lacks, "absent": none, "empty": no_vm if not shown else ()}
    regions = (
        Region("missing", "machines_missing.html", tuple(known.values()), known),
        *(Region(m.id, "machine.html", (row, permissions), {"vm": m, "may": may}) for row, m in shown),
    )
    q = first(visit, "q")
    context = {"rows": tuple(m.id for _, m in shown), "pager": pager, "q": q, "many": q or len(virtual.vms) > FEW}
    return PageContent("machines.html", "Virtual machines", regions, context)
