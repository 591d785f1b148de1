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
from aliquot.kubernetes.client.object_base import KubeObject, Part, ResourceType
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import PCIDevice, PCIDeviceClaim, VGPUDevice, passing, served
from aliquot.kubernetes.kinds.kubevirt import PERMITTED_ANNOTATION, KubeVirt

JSON = dict[str, Any]
PCI, MEDIATED = "pciHostDevices", "mediatedDevices"
SELECTORS = {PCI: "pciVendorSelector", MEDIATED: "mdevNameSelector"}


class _Configuration(Part, frozen=True):
    permitted_host_devices: JSON | None = None


class _Spec(Part, frozen=True):
    configuration: _Configuration = _Configuration()


class Settings(KubeObject, frozen=True):
    """KubeVirt's settings object with the permitted devices as they came, fields that we do not know included."""

    TYPE: ClassVar[ResourceType] = KubeVirt.TYPE

    spec: _Spec = _Spec()


class Entry(msgspec.Struct, frozen=True, order=True):
    """``place`` is the list that it stands in (``PCI`` or ``MEDIATED``), ``selector`` what it says of the device:
    ``10de:26b9``, or a vGPU type's name.
    """

    place: str
    resource: str
    selector: str

    def body(self) -> JSON:
        return {
            SELECTORS[self.place]: self.selector,
            "resourceName": self.resource,
            "externalResourceProvider": True,
        }


class Wanted(msgspec.Struct, frozen=True):
    """``entries`` are known whole. ``wished`` are resources that should come, or come back: an entry that is there for
    one of them stays, though nothing makes the resource at this moment. ``foreign`` are resources of nodes that
    pcidevices serves, and of functions that we do not: their entries stay as they are.
    """

    entries: frozenset[Entry] = frozenset()
    wished: frozenset[str] = frozenset()
    foreign: frozenset[str] = frozenset()


def wanted(
    vgpus: Iterable[VGPUDevice],
    functions: Iterable[PCIDevice],
    claims: Iterable[PCIDeviceClaim],
    used: Collection[str] = (),
    foreign_nodes: Collection[str] = (),
) -> Wanted:
    """Of all nodes' objects. ``used`` are resources that machines have or wait for. A vGPU's world follows from its
    status: an mdev has a UUID there, in the vendor VFIO world it is a type's number.
    """
    found: set[Entry] = set()
    wished, foreign = set(used), set[str]()
    by_name = {each.name: each for each in functions}
    for vgpu in vgpus:
        theirs = vgpu.spec.node_name in foreign_nodes
        configured = vgpu.status.configured if vgpu.status.state == names.CONFIGURED else ""
        asked = vgpu.spec.type_name if vgpu.spec.enabled else ""
        (foreign if theirs else wished).update(names.vgpu_resource(each) for each in (asked, configured) if each)
        if configured and not theirs:
            found |= _of_vgpu(vgpu, by_name.get(vgpu.name))
    for claim in claims:
        function = by_name.get(claim.name)
        if function is None or not function.status.resource_name or not passing(claim):
            continue
        theirs = claim.spec.node_name in foreign_nodes or not served(function)
        (foreign if theirs else wished).add(function.status.resource_name)
        if claim.status.passthrough_enabled and _ids(function) and not theirs:
            found.add(Entry(PCI, function.status.resource_name, _ids(function)))
    return Wanted(frozenset(found), frozenset(wished), frozenset(foreign))


def _of_vgpu(vgpu: VGPUDevice, function: PCIDevice | None) -> set[Entry]:
    """The entry of a configured vGPU; none while its function's ids are not known."""
    resource = names.vgpu_resource(vgpu.status.configured)
    if not vgpu.status.uuid.isdecimal():
        return {Entry(MEDIATED, resource, vgpu.status.configured)}
    return {Entry(PCI, resource, _ids(function))} if function is not None and _ids(function) else set()


def _ids(function: PCIDevice) -> str:
    vendor, device = function.status.vendor_id, function.status.device_id
    return f"{vendor}:{device}" if vendor and device else ""


# -- the patch


def remembered(settings: Settings) -> frozenset[str]:
    """The resources whose entries are ours. An annotation that somebody spoilt says nothing: what our objects make now
    is known without it.
    """
    try:
        return frozenset(
            msgspec.json.decode(settings.metadata.annotations.get(PERMITTED_ANNOTATION, "[]"), type=list[str])
        )
    except (*UNREADABLE, UnicodeError):
        return frozenset()


def patch(settings: Settings, want: Wanted) -> JSON:
    """The merge patch that makes the entries so, bound to the version that was read; empty when all is so."""
    now = settings.spec.configuration.permitted_host_devices or {}
    mine = remembered(settings) | {entry.resource for entry in want.entries}
    lists = {place: _list(place, now.get(place) or [], want, mine) for place in SELECTORS}
    changed = {place: entries for place, entries in lists.items() if entries != (now.get(place) or [])}
    kept = {_entry(place, row).resource for place in SELECTORS for row in lists[place] if _external(row)} & mine
    text = json.dumps(sorted(kept))
    noted = (
        {} if text == settings.metadata.annotations.get(PERMITTED_ANNOTATION, "[]") else {PERMITTED_ANNOTATION: text}
    )
    if not changed and not noted:
        return {}
    body: JSON = {"metadata": {"resourceVersion": settings.metadata.resource_version}}
    if noted:
        body["metadata"]["annotations"] = noted
    if changed:
        body["spec"] = {"configuration": {"permittedHostDevices": changed}}
    return body


def foreign(settings: Settings, want: Wanted) -> tuple[str, ...]:
    """Resources that we make and that KubeVirt's own device plugin would offer as well: sentences for the owner."""
    now = settings.spec.configuration.permitted_host_devices or {}
    ours = {entry.resource for entry in want.entries}
    found = {
        _entry(place, row).resource
        for place in SELECTORS
        for row in now.get(place) or []
        if not _external(row) and _entry(place, row).resource in ours
    }
    return tuple(
        f"KubeVirt's permittedHostDevices has {resource} without externalResourceProvider: KubeVirt offers it as well, "
        f"and kubelet takes the one that came last; set externalResourceProvider: true there"
        for resource in sorted(found)
    )


def _list(place: str, rows: list[JSON], want: Wanted, mine: Collection[str]) -> list[JSON]:
    """What is there, without ours that nothing makes or wishes, without what stands there twice, and what is new."""
    kept: list[JSON] = []
    seen: set[Entry] = set()
    for row in rows:
        entry = _entry(place, row)
        if _external(row) and entry.resource in mine and entry.resource not in want.foreign:
            if entry in seen or not _stays(entry, want):
                continue
            seen.add(entry)
        kept.append(row)
    named = {_entry(place, row) for row in kept}
    return kept + [entry.body() for entry in sorted(want.entries - named) if entry.place == place]


def _stays(entry: Entry, want: Wanted) -> bool:
    """An entry of a resource that others make elsewhere in the other world, or of another card, is old."""
    made = {each.resource for each in want.entries}
    return entry in want.entries or (entry.resource in want.wished and entry.resource not in made)


def _entry(place: str, row: Any) -> Entry:
    """Rows are others' too: whatever is in them, it is read."""
    fields = row if isinstance(row, dict) else {}
    return Entry(place, str(fields.get("resourceName", "")), str(fields.get(SELECTORS[place], "")))


def _external(row: Any) -> bool:
    return isinstance(row, dict) and row.get("externalResourceProvider") is True
