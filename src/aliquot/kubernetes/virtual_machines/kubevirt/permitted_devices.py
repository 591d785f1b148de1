"""Which devices KubeVirt lets machines ask for: the entries that are ours in its one settings object. Pure.

KubeVirt refuses a machine whose resource is not in ``spec.configuration.permittedHostDevices``. An entry that says
``externalResourceProvider`` leaves the device plugin to somebody else: us. Ours are those whose resource our objects
make, or made (remembered in an annotation); every other entry stays as it is, byte for byte, and so does the order.
pcidevices writes entries of its own nodes' objects meanwhile: an entry of a resource that those make is left alone.
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
from aliquot.kubernetes.kinds.kubevirt import PERMITTED_ANNOTATION, KubeVirt

JSON = dict[str, Any]
PCI, MEDIATED = "pciHostDevices", "mediatedDevices"
SELECTORS = {PCI: "pciVendorSelector", MEDIATED: "mdevNameSelector"}


class _Configuration(ApiStruct, frozen=True):
    permitted_host_devices: JSON | None = None


class _Spec(ApiStruct, frozen=True):
    configuration: _Configuration = _Configuration()


class KubeVirtSettings(KubeObject, frozen=True):
    """KubeVirt's settings object with the permitted devices as they came, fields that we do not know included."""

    TYPE: ClassVar[ResourceType] = KubeVirt.TYPE

    spec: _Spec = _Spec()


class PermittedDevice(msgspec.Struct, frozen=True, order=True):
    """``list_name`` is the list that it stands in (``PCI`` or ``MEDIATED``), ``selector`` what it says of the device:
    ``10de:26b9``, or a vGPU type's name.
    """

    list_name: str
    resource: str
    selector: str

    def body(self) -> JSON:
        return {
            SELECTORS[self.list_name]: self.selector,
            "resourceName": self.resource,
            "externalResourceProvider": True,
        }


class WantedEntries(msgspec.Struct, frozen=True):
    """``entries`` are known whole. ``requested`` are resources that should come, or come back: an entry that is there
    for one of them stays, though nothing makes the resource at this moment. ``foreign`` are resources of
    nodes that pcidevices serves, and of functions that we do not: their entries stay as they are.
    """

    entries: frozenset[PermittedDevice] = frozenset()
    requested: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()


def wanted_entries(
    vgpus: Iterable[VGPUDevice],
    functions: Iterable[PCIDevice],
    claims: Iterable[PCIDeviceClaim],
    used: Collection[str] = (),
    foreign_nodes: Collection[str] = (),
) -> WantedEntries:
    """Of all nodes' objects. ``used`` are resources that machines have or wait for. A vGPU's world follows from its
    status: an mdev has a UUID there, in the vendor VFIO world it is a type's number.
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
    return WantedEntries(frozenset(found), frozenset(requested), frozenset(foreign))


def _vgpu_entries(vgpu: VGPUDevice, function: PCIDevice | None) -> set[PermittedDevice]:
    """The entry of a configured vGPU; none while its function's ids are not known."""
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
    """The resources whose entries are ours. An annotation that somebody spoilt says nothing: what our objects make now
    is known without it.
    """
    try:
        return frozenset(
            msgspec.json.decode(settings.metadata.annotations.get(PERMITTED_ANNOTATION, "[]"), type=list[str])
        )
    except (*UNREADABLE, UnicodeError):
        return frozenset()


def patch(settings: KubeVirtSettings, want: WantedEntries) -> JSON:
    """The merge patch that makes the entries so, bound to the version that was read; empty when all is so."""
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
    """Resources that we make and that KubeVirt's own device plugin would offer as well: sentences for the owner."""
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
        f"and kubelet takes the one that came last; set externalResourceProvider: true there"
        for resource in sorted(found)
    )


def _list(list_name: str, rows: list[JSON], want: WantedEntries, mine: Collection[str]) -> list[JSON]:
    """What is there, without ours that nothing makes or wishes, without what stands there twice, and what is new."""
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
    """An entry of a resource that others make elsewhere in the other world, or of another card, is old."""
    made = {each.resource for each in want.entries}
    return entry in want.entries or (entry.resource in want.requested and entry.resource not in made)


def _entry(list_name: str, row: Any) -> PermittedDevice:
    """Rows are others' too: whatever is in them, it is read."""
    fields = row if isinstance(row, dict) else {}
    return PermittedDevice(list_name, str(fields.get("resourceName", "")), str(fields.get(SELECTORS[list_name], "")))


def _has_external_provider(row: Any) -> bool:
    return isinstance(row, dict) and row.get("externalResourceProvider") is True
