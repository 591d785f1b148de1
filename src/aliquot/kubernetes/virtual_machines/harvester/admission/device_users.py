"""The VM that uses a device, found from the requests of VMs and not only from annotations.

The annotation names the devices of a VM, but is written only once the VM runs. A VM that was created through the API
may have device names without a meaning. A VM whose device of a resource is not known may therefore have any device of
the resource that is not known to be allocated. A ResourceClaim tells which device it has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from itertools import chain

import msgspec

from aliquot.errors import Message
from aliquot.kubernetes.client.codec import UNREADABLE
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.kubevirt import DeviceRequest, VirtualMachine
from aliquot.kubernetes.virtual_machines.harvester.admission.claim_holders import (
    ClaimHolder,
    claim_holders,
    claimed_sentence,
    leaving_vm,
    stop_command,
)
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, Key
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


class _Allocation(msgspec.Struct, frozen=True):
    gpus: dict[str, list[str]] | None = None
    hostdevices: dict[str, list[str]] | None = None


class _Requester(msgspec.Struct, frozen=True):
    """A VM that runs or should run."""

    key: Key
    node: str
    """Empty until it is known."""
    requested: Counter[str]
    allocated: dict[str, tuple[str, ...]]
    """The object names that the annotation gives, by resource."""


class _Competition(msgspec.Struct, frozen=True):
    """The devices of a resource, and the VMs of which it is not known which one they have."""

    devices: dict[str, str]
    """The node of each device."""
    unallocated: int
    unknown: tuple[_Requester, ...]


def annotated_devices(vm: VirtualMachine | None) -> dict[str, tuple[str, ...]]:
    """Return object names by resource, from the annotation; empty if it is missing or unreadable."""
    text = vm.metadata.annotations.get(names.ALLOCATION_ANNOTATION, "") if vm is not None else ""
    try:
        found = msgspec.json.decode(text, type=_Allocation) if text else _Allocation()
    except UNREADABLE:
        return {}
    out: dict[str, tuple[str, ...]] = {}
    for part in (found.gpus, found.hostdevices):
        for resource, given in (part or {}).items():
            out[resource] = tuple(dict.fromkeys((*out.get(resource, ()), *given)))
    return out


def resource_of(snapshot: AdmissionSnapshot, name: str) -> str:
    """Return the resource that a device is offered as; "" if it is not offered."""
    vgpu = snapshot.vgpus.get(name)
    type_name = "" if vgpu is None else vgpu.status.configured or (vgpu.spec.type_name if vgpu.spec.enabled else "")
    if type_name:
        return names.vgpu_resource(type_name)
    if name in snapshot.usb and name in snapshot.usb_claims:
        return snapshot.usb[name].status.resource_name
    function = snapshot.functions.get(name)
    return function.status.resource_name if function is not None and name in snapshot.claims else ""


def devices_of(snapshot: AdmissionSnapshot, resource: str) -> dict[str, str]:
    """Return the devices that are offered as a resource, each with its node."""
    found = {n: v.spec.node_name for n, v in snapshot.vgpus.items() if resource_of(snapshot, n) == resource}
    claimed = {n: c.spec.node_name for n, c in snapshot.claims.items() if resource_of(snapshot, n) == resource}
    usb = {n: snapshot.usb[n].status.node_name for n in snapshot.usb if resource_of(snapshot, n) == resource}
    return claimed | found | usb


def describe_holder(snapshot: AdmissionSnapshot, name: str) -> Message | None:
    """Return a sentence about the VM that uses this device, or may use it; None if no VM does."""
    return DeviceUsers(snapshot).describe(name)


class DeviceUsers:
    """The VMs that use devices.

    It reads VMs and ResourceClaims once, for questions about many devices of one snapshot.
    """

    def __init__(self, snapshot: AdmissionSnapshot) -> None:
        self._snapshot = snapshot
        self._resources: dict[str, _Competition] = {}

    def describe(self, name: str) -> Message | None:
        """Return a sentence about the VM that uses this device, or may use it; None if no VM does."""
        if (key := self._holders.get(name)) is not None:
            return _held_sentence(name, key, self._snapshot)
        if (claimed := self.describe_claim(name)) is not None:
            return claimed
        resource = resource_of(self._snapshot, name)
        return _possible_holder(name, resource, self._competition(resource)) if resource else None

    def describe_claim(self, *objects: str) -> Message | None:
        """Return a sentence about the first of these devices that is in use through a ResourceClaim; None if none is.

        A device has the name of its objects: also a GPU as a whole has one.
        """
        claimed = next((name for name in objects if name in self._claimed), "")
        return claimed_sentence(claimed, self._claimed[claimed], self._snapshot) if claimed else None

    @cached_property
    def _claimed(self) -> dict[str, ClaimHolder]:
        return claim_holders(self._snapshot)

    @cached_property
    def _holders(self) -> dict[str, Key]:
        """The VM that holds each device, by name or by its allocation."""
        found: dict[str, Key] = {}
        for key, vm in sorted(self._snapshot.vms.items()):
            for name in _held_names(vm, self._snapshot, key):
                found.setdefault(name, key)
        for requester in self._requesters:
            for name in chain.from_iterable(requester.allocated.values()):
                found.setdefault(name, requester.key)
        return found

    @cached_property
    def _requesters(self) -> tuple[_Requester, ...]:
        return tuple(_requesters(self._snapshot))

    def _competition(self, resource: str) -> _Competition:
        if resource not in self._resources:
            devices = devices_of(self._snapshot, resource)
            known = {each for requester in self._requesters for each in requester.allocated.get(resource, ())}
            known |= self._claimed.keys()
            unknown = tuple(a for a in self._requesters if a.requested[resource] > len(a.allocated.get(resource, ())))
            self._resources[resource] = _Competition(devices, len(devices.keys() - known), unknown)
        return self._resources[resource]


def describe_running_holder(snapshot: AdmissionSnapshot, name: str) -> Message | None:
    """Return a sentence about the VM that runs with this device, or may; None if no VM does.

    A stopped VM gets the device as it is when it starts.
    """
    running = {key for key, instance in snapshot.instances.items() if not instance.finished}
    vms = {key: vm for key, vm in snapshot.vms.items() if key in running}
    return describe_holder(msgspec.structs.replace(snapshot, vms=vms), name)


def _held_sentence(name: str, key: Key, snapshot: AdmissionSnapshot) -> Message:
    """Describe the VM that uses a device, with the command that releases it.

    A stopped VM that names a device will get it again: stopping is not enough, the entry must go. Only a VM with a
    VirtualMachine object has its devices by name or annotation.
    """
    space, name_of_vm = key
    text = f"{name} is in use with VM {name_of_vm} in namespace {space}"
    instance, vm = snapshot.instances.get(key), snapshot.vms[key]
    if leaving := leaving_vm(key, snapshot, text):
        return leaving
    if instance is None or instance.finished:
        why = f"{text}, which does not run but lists it: remove it from the VM's devices, or delete the VM"
        return advice(why, f"kubectl edit vm {name_of_vm} -n {space}")
    return advice(f"{text}: stop the VM, then remove the device from it", stop_command(space, {name_of_vm: vm}))


def _held_names(vm: VirtualMachine, snapshot: AdmissionSnapshot, key: Key) -> set[str]:
    """Return the devices that a VM holds by name.

    For a running VM the allocation counts, and the names only until it exists; for a stopped VM the names count, as in
    Harvester.
    """
    allocated: dict[str, tuple[str, ...]] = {}
    devices = vm.devices.all
    if key in snapshot.instances and not snapshot.instances[key].finished:
        allocated, devices = annotated_devices(vm), snapshot.instances[key].devices.all
    known = (snapshot.vgpus, snapshot.claims, snapshot.usb_claims)
    named = {d.name for d in devices if d.device_name not in allocated and any(d.name in each for each in known)}
    # A USB device has a resource of its own: a VM that requests it has this device, whatever its entry is called.
    requested = {d.device_name for d in devices}
    named |= {n for n in snapshot.usb_claims if n in snapshot.usb and resource_of(snapshot, n) in requested - {""}}
    return named | {each for given in allocated.values() for each in given}


def _requesters(snapshot: AdmissionSnapshot) -> Iterator[_Requester]:
    for key, instance in sorted(snapshot.instances.items()):
        if not instance.finished:
            allocated = annotated_devices(snapshot.vms.get(key))
            yield _Requester(key, instance.status.node_name, _count_requests(instance.devices.all), allocated)
            if instance.migration_target:  # it has as many devices again there, which the annotation does not show yet
                yield _Requester(key, instance.migration_target, _count_requests(instance.devices.all), {})
    for key, vm in sorted(snapshot.vms.items()):
        last = snapshot.instances.get(key)
        starts = vm.should_run if last is None else last.finished and vm.should_run_after(last.status.phase)
        if starts and vm.metadata.deletion_timestamp is None:
            yield _Requester(key, "", _count_requests(vm.devices.all), {})


def _count_requests(devices: tuple[DeviceRequest, ...]) -> Counter[str]:
    return Counter(each.device_name for each in devices if each.device_name)


def _possible_holder(name: str, resource: str, found: _Competition) -> Message | None:
    """Return a sentence about a VM whose devices are not known yet, and that may have or need this one.

    A VM on the device's node may have this device. A VM without a node needs one of the devices that are left.
    """
    running = next((a for a in found.unknown if a.node and a.node == found.devices.get(name)), None)
    if running is not None:
        where = f"VM {running.key[1]} in namespace {running.key[0]} runs on {running.node} with {resource}"
        return Message(f"{where}, but its device is not known yet: it may be {name}; try again in a minute")
    need = sum(a.requested[resource] - len(a.allocated.get(resource, ())) for a in found.unknown)
    waiting = next((a for a in found.unknown if not a.node), None)
    if waiting is not None and need > found.unallocated - 1:
        about = f"VM {waiting.key[1]} in namespace {waiting.key[0]} is about to start with {resource}"
        return Message(f"{about} and would not find a device without {name}: stop the VM first")
    return None
