"""Which devices a virtual machine really has, as its annotation tells it. Pure.

A machine asks for a resource and names the entry as its user likes; which device it gets is decided when it starts. The
annotation says which, and when the machine stops, the names in its spec become those of the devices that it had: so it
is in Harvester, whose user interface shows both. Source: harvester/pcidevices, pkg/controller/virtualmachine and
pkg/apis (``AllocationDetails``).
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
    """Names of objects by resource, for the entries of ``gpus`` and of ``hostDevices``."""

    gpus: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    hostdevices: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for part in (self.gpus, self.hostdevices) for some in part.values() for name in some)


def parse(text: str) -> VmAllocation | None:
    """What an annotation says; None for nonsense, or where there is none."""
    try:
        return msgspec.json.decode(text, type=VmAllocation) if text else None
    except UNREADABLE:
        return None


def render(allocation: VmAllocation) -> str:
    """The annotation's text, in the spelling of Go's JSON."""
    return msgspec.json.encode(allocation, order="sorted").decode()


def allocation_of(devices: VmDevices, ids: Ids, names: Mapping[str, str]) -> VmAllocation:
    """What the entries of a running machine got. ``ids`` are what its launcher was given, ``names`` the objects that
    stand for ids; what stands for none is left out. A resource that both lists ask for is split in their order, since
    nothing tells which device went to which.
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
    """``found``, and what others have noted for resources that are not ours: a network card, a USB device. ``known``
    are the names of our objects.
    """

    def part(new: dict[str, tuple[str, ...]], old: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
        return {resource: some for resource, some in old.items() if not set(some) & set(known)} | new

    return VmAllocation(part(found.gpus, previous.gpus), part(found.hostdevices, previous.hostdevices))


def rename_patch(devices: VmDevices, allocation: VmAllocation) -> list[JSON]:
    """The JSON patch that gives the entries of a stopped machine's spec the names of the devices that it had, empty
    where they have them. It is refused where the spec has changed meanwhile; names that would then be there twice,
    which KubeVirt does not allow, are not given.
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
    """The JSON patch that takes the annotation away if it still is this text."""
    path = "/metadata/annotations/" + ALLOCATION_ANNOTATION.replace("~", "~0").replace("/", "~1")
    return [{"op": "test", "path": path, "value": text}, {"op": "remove", "path": path}]
