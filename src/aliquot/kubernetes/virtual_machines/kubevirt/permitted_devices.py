"""KubeVirt's permitted devices: the entries that Aliquot owns in KubeVirt's settings object. Pure.

KubeVirt rejects a VM whose resource is not in ``spec.configuration.permittedHostDevices``. An entry with
``externalResourceProvider`` leaves the device plugin to another program: Aliquot.

Aliquot owns the entries of resources that its objects make or made (recorded in an annotation). Every other entry stays
as it is, byte for byte, in its place. pcidevices meanwhile writes entries for the objects of its own nodes. An entry of
a resource that those make is left alone.

Sources: KubeVirt user guide ("Host devices assignment"); harvester/pcidevices, pkg/controller (what it writes there).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any, ClassVar

import msgspec

from aliquot.kubernetes.client.codec import UNREADABLE
from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import PCIDevice, PCIDeviceClaim, VGPUDevice, is_served, passes_through
from aliquot.kubernetes.kinds.harvester_peripherals import USBDevice, serves_usb
from aliquot.kubernetes.kinds.kubevirt import PERMITTED_ANNOTATION, KubeVirt

JSON = dict[str, Any]
PCI, MEDIATED, USB = "pciHostDevices", "mediatedDevices", "usb"
SELECTORS = {PCI: "pciVendorSelector", MEDIATED: "mdevNameSelector", USB: "selectors"}


class _Configuration(ApiStruct, frozen=True):
    permitted_host_devices: JSON | None = None


class _Spec(ApiStruct, frozen=True):
    configuration: _Configuration = _Configuration()


class KubeVirtSettings(KubeObject, frozen=True):
    """KubeVirt's settings object, with the permitted devices as received, including unknown fields."""

    TYPE: ClassVar[ResourceType] = KubeVirt.TYPE

    spec: _Spec = _Spec()


class PermittedDevice(msgspec.Struct, frozen=True, order=True):
    """An entry of ``permittedHostDevices``."""

    list_name: str
    """The list that contains the entry: ``PCI``, ``MEDIATED`` or ``USB``."""
    resource: str
    selector: str
    """Selects the device: ``10de:26b9``, or the name of a vGPU type. For USB: ``0951:1666``."""

    def body(self) -> JSON:
        vendor, _, product = self.selector.partition(":")
        usb = [{"vendor": vendor, "product": product}]
        return {
            SELECTORS[self.list_name]: usb if self.list_name == USB else self.selector,
            "resourceName": self.resource,
            "externalResourceProvider": True,
        }


class WantedEntries(msgspec.Struct, frozen=True):
    """The entries that should exist."""

    entries: frozenset[PermittedDevice] = frozenset()
    """Entries that are known completely."""
    requested: frozenset[str] = frozenset()
    """Resources that are requested. Their existing entries stay, even if nothing makes the resource now."""
    foreign: frozenset[str] = frozenset()
    """Resources of nodes that pcidevices serves, and of functions that Aliquot does not serve. Their entries stay as
    they are.
    """


def wanted_entries(
    vgpus: Iterable[VGPUDevice],
    functions: Iterable[PCIDevice],
    claims: Iterable[PCIDeviceClaim],
    used: Collection[str] = (),
    foreign_nodes: Collection[str] = (),
    usb: Iterable[USBDevice] = (),
) -> WantedEntries:
    """Return the entries for the objects of all nodes. ``used`` are resources that VMs have or wait for, ``usb`` the
    USB devices with a claim.

    The status of a vGPU shows its framework: a UUID for an mdev, the number of the type with vendor-specific VFIO.
    """
    found: set[PermittedDevice] = set()
    requested, foreign = set(used), set[str]()
    by_name = {each.name: each for each in functions}
    for vgpu in vgpus:
        is_foreign = vgpu.spec.node_name in foreign_nodes
        configured = vgpu.status.configured if vgpu.status.state == names.CONFIGURED else ""
        requested_type = vgpu.spec.type_name if vgpu.spec.enabled else ""
        (foreign if is_foreign else requested).update(
            names.vgpu_resource(each) for each in (requested_type, configured) if each
        )
        if configured and not is_foreign:
            found |= _vgpu_entries(vgpu, by_name.get(vgpu.name))
    for claim in claims:
        function = by_name.get(claim.name)
        if function is None or not function.status.resource_name or not passes_through(claim):
            continue
        is_foreign = claim.spec.node_name in foreign_nodes or not is_served(function)
        (foreign if is_foreign else requested).add(function.status.resource_name)
        if claim.status.passthrough_enabled and _vendor_and_device(function) and not is_foreign:
            found.add(PermittedDevice(PCI, function.status.resource_name, _vendor_and_device(function)))
    more = _wanted_usb(usb, foreign_nodes)
    return WantedEntries(
        frozenset(found) | more.entries, frozenset(requested) | more.requested, frozenset(foreign) | more.foreign
    )


def _wanted_usb(devices: Iterable[USBDevice], foreign_nodes: Collection[str]) -> WantedEntries:
    """Return the entries for claimed USB devices."""
    named = [each for each in devices if each.status.resource_name]
    ours = [each for each in named if serves_usb(each) and each.status.node_name not in foreign_nodes]
    requested = frozenset(each.status.resource_name for each in ours)
    foreign = frozenset(each.status.resource_name for each in named) - requested
    return WantedEntries(frozenset(entry for each in ours for entry in _usb_entries(each)), requested, foreign)


def _usb_entries(device: USBDevice) -> set[PermittedDevice]:
    """Return the entry of a USB device that is passed through."""
    status = device.status
    if status.enabled is not True or not (status.vendor_id and status.product_id):
        return set()
    return {PermittedDevice(USB, status.resource_name, f"{status.vendor_id}:{status.product_id}")}


def _vgpu_entries(vgpu: VGPUDevice, function: PCIDevice | None) -> set[PermittedDevice]:
    """Return the entry of a configured vGPU; none while its function's ids are not known."""
    resource = names.vgpu_resource(vgpu.status.configured)
    if not vgpu.status.uuid.isdecimal():
        return {PermittedDevice(MEDIATED, resource, vgpu.status.configured)}
    return (
        {PermittedDevice(PCI, resource, _vendor_and_device(function))}
        if function is not None and _vendor_and_device(function)
        else set()
    )


def _vendor_and_device(function: PCIDevice) -> str:
    vendor, device = function.status.vendor_id, function.status.device_id
    return f"{vendor}:{device}" if vendor and device else ""


# -- the patch


def recorded_resources(settings: KubeVirtSettings) -> frozenset[str]:
    """Return the resources whose entries Aliquot owns.

    A damaged annotation counts as empty: the resources that the objects make now are known without it.
    """
    try:
        return frozenset(
            msgspec.json.decode(settings.metadata.annotations.get(PERMITTED_ANNOTATION, "[]"), type=list[str])
        )
    except (*UNREADABLE, UnicodeError):
        return frozenset()


def patch(settings: KubeVirtSettings, want: WantedEntries) -> JSON:
    """Return the merge patch that creates the entries, bound to the version that was read; empty if nothing changes."""
    now = settings.spec.configuration.permitted_host_devices or {}
    mine = recorded_resources(settings) | {entry.resource for entry in want.entries}
    lists = {list_name: _list(list_name, now.get(list_name) or [], want, mine) for list_name in SELECTORS}
    changed = {list_name: entries for list_name, entries in lists.items() if entries != (now.get(list_name) or [])}
    recorded = {
        _entry(list_name, row).resource
        for list_name in SELECTORS
        for row in lists[list_name]
        if _has_external_provider(row)
    } & mine
    text = json.dumps(sorted(recorded))
    annotation = (
        {} if text == settings.metadata.annotations.get(PERMITTED_ANNOTATION, "[]") else {PERMITTED_ANNOTATION: text}
    )
    if not changed and not annotation:
        return {}
    body: JSON = {"metadata": {"resourceVersion": settings.metadata.resource_version}}
    if annotation:
        body["metadata"]["annotations"] = annotation
    if changed:
        body["spec"] = {"configuration": {"permittedHostDevices": changed}}
    return body


def foreign_conflicts(settings: KubeVirtSettings, want: WantedEntries) -> tuple[str, ...]:
    """Return sentences for the administrator about our resources that KubeVirt's own device plugin would offer, too."""
    now = settings.spec.configuration.permitted_host_devices or {}
    ours = {entry.resource for entry in want.entries}
    found = {
        _entry(list_name, row).resource
        for list_name in SELECTORS
        for row in now.get(list_name) or []
        if not _has_external_provider(row) and _entry(list_name, row).resource in ours
    }
    return tuple(
        f"KubeVirt's permittedHostDevices has {resource} without externalResourceProvider: KubeVirt offers it as well, "
        f"and kubelet takes the last one to register; set externalResourceProvider: true there"
        for resource in sorted(found)
    )


def _list(list_name: str, rows: list[JSON], want: WantedEntries, mine: Collection[str]) -> list[JSON]:
    """Return the new list: without duplicates, without our entries that are obsolete, and with the missing ones."""
    rows_to_keep: list[JSON] = []
    seen: set[PermittedDevice] = set()
    for row in rows:
        entry = _entry(list_name, row)
        if _has_external_provider(row) and entry.resource in mine and entry.resource not in want.foreign:
            if entry in seen or not _is_current(entry, want):
                continue
            seen.add(entry)
        rows_to_keep.append(row)
    named = {_entry(list_name, row) for row in rows_to_keep}
    return rows_to_keep + [entry.body() for entry in sorted(want.entries - named) if entry.list_name == list_name]


def _is_current(entry: PermittedDevice, want: WantedEntries) -> bool:
    """Report whether an entry of ours stays.

    It is obsolete if its resource is now made elsewhere with another framework or by another GPU model.
    """
    made = {each.resource for each in want.entries}
    return entry in want.entries or (entry.resource in want.requested and entry.resource not in made)


def _entry(list_name: str, row: Any) -> PermittedDevice:
    """Parse a row. Rows of other programs may have any content."""
    fields = row if isinstance(row, dict) else {}
    selector = fields.get(SELECTORS[list_name], "")
    if list_name == USB:
        pairs = [each for each in selector if isinstance(each, dict)] if isinstance(selector, list) else []
        selector = ",".join(f"{each.get('vendor', '')}:{each.get('product', '')}" for each in pairs)
    return PermittedDevice(list_name, str(fields.get("resourceName", "")), str(selector))


def _has_external_provider(row: Any) -> bool:
    return isinstance(row, dict) and row.get("externalResourceProvider") is True
