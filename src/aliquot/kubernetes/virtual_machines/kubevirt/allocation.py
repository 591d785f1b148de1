"""The devices that a VM has, as its annotation states them. Pure.

A VM requests a resource, under an entry name that its user chooses. Which device it gets is decided at its start. The
annotation then names the device. When the VM stops, its spec gets the names of the devices that it had, as in
Harvester, whose user interface shows both. Source: harvester/pcidevices, pkg/controller/virtualmachine and pkg/apis
(``AllocationDetails``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from aliquot.kubernetes.client.codec import UNREADABLE
from aliquot.kubernetes.kinds.harvester_names import ALLOCATION_ANNOTATION
from aliquot.kubernetes.kinds.kubevirt import DeviceRequest, VmDevices

JSON = dict[str, Any]
Ids = Mapping[str, Sequence[str]]
"""Device ids by resource."""


class VmAllocation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Object names by resource, for the entries of ``gpus`` and of ``hostDevices``."""

    gpus: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    hostdevices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for part in (self.gpus, self.hostdevices) for some in part.values() for name in some)


def parse(text: str) -> VmAllocation | None:
    """Parse an annotation; None if it is missing or invalid."""
    try:
        return msgspec.json.decode(text, type=VmAllocation) if text else None
    except UNREADABLE:
        return None


def render(allocation: VmAllocation) -> str:
    """Render the annotation's text with the spelling of Go's JSON."""
    return msgspec.json.encode(allocation, order="sorted").decode()


def allocation_of(devices: VmDevices, ids: Ids, names: Mapping[str, str]) -> VmAllocation:
    """Return the devices that the entries of a running VM got.

    ``ids`` are the device ids of its launcher, ``names`` maps ids to objects; ids without an object are omitted. If
    both lists request a resource, its devices are split in the order of the lists, because nothing shows which entry
    got which.
    """
    gpus, host = devices.gpus or (), devices.host_devices or ()
    taken: dict[str, tuple[str, ...]] = {}
    rest: dict[str, tuple[str, ...]] = {}
    for resource, resource_ids in ids.items():
        known = tuple(dict.fromkeys(names[each] for each in resource_ids if each in names))
        mine, others = _count_requests(gpus, resource), _count_requests(host, resource)
        first = known[:mine] if others else known if mine else ()
        left = known[len(first) :] if others else ()
        taken |= {resource: first} if first else {}
        rest |= {resource: left} if left else {}
    return VmAllocation(taken, rest)


def _count_requests(entries: Sequence[DeviceRequest], resource: str) -> int:
    return sum(entry.device_name == resource and not entry.claim_name for entry in entries)


def merge_foreign(found: VmAllocation, previous: VmAllocation, known: Collection[str]) -> VmAllocation:
    """Return ``found`` with the entries of others for resources that are not ours, such as a network card.

    ``known`` are the names of our objects.
    """

    def part(new: dict[str, tuple[str, ...]], old: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        return {resource: some for resource, some in old.items() if not set(some) & set(known)} | new

    return VmAllocation(part(found.gpus, previous.gpus), part(found.hostdevices, previous.hostdevices))


def rename_patch(devices: VmDevices, allocation: VmAllocation) -> list[JSON]:
    """Return the JSON patch that names the entries of a stopped VM's spec after the devices that it had.

    It is empty if the names match. The API server rejects it if the spec has changed meanwhile. If a name would occur
    twice, which KubeVirt does not allow, the entries keep their names.
    """
    return [
        *_rename_entries("gpus", devices.gpus or (), allocation.gpus),
        *_rename_entries("hostDevices", devices.host_devices or (), allocation.hostdevices),
    ]


def _rename_entries(
    field: str, entries: Sequence[DeviceRequest], names_by_resource: Mapping[str, Sequence[str]]
) -> list[JSON]:
    queues = {resource: list(names) for resource, names in names_by_resource.items()}
    after = []
    for entry in entries:
        queue = [] if entry.claim_name else queues.get(entry.device_name, [])
        after.append(queue.pop(0) if queue else entry.name)
    if len(set(after)) != len(after):
        return []
    patch: list[JSON] = []
    for n, (entry, name) in enumerate(zip(entries, after, strict=True)):
        if name != entry.name:
            path = f"/spec/template/spec/domain/devices/{field}/{n}"
            patch += [
                {"op": "test", "path": f"{path}/deviceName", "value": entry.device_name},
                {"op": "test", "path": f"{path}/name", "value": entry.name},
                {"op": "replace", "path": f"{path}/name", "value": name},
            ]
    return patch


def removal_patch(text: str) -> list[JSON]:
    """Return the JSON patch that removes the annotation if it still has this text."""
    path = "/metadata/annotations/" + ALLOCATION_ANNOTATION.replace("~", "~0").replace("/", "~1")
    return [{"op": "test", "path": path, "value": text}, {"op": "remove", "path": path}]
