"""Which virtual machine uses a device: from what machines ask for, not from an annotation alone.

The annotation says exactly which devices a machine got, but comes when it runs already, and a machine that was made
through the API may have device names that mean nothing. Whoever asks for a resource and is not accounted for may have
any device of it that is not accounted for either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from aliquot.kubernetes.client.codec import UNREADABLE
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.kubevirt import DeviceRequest, VirtualMachine
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, Key
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


class _Allocation(msgspec.Struct, frozen=True):
    gpus: dict[str, list[str]] | None = None
    hostdevices: dict[str, list[str]] | None = None


class _Requester(msgspec.Struct, frozen=True):
    """A machine that runs or is to run. ``node`` is empty until it is known. ``allocated`` are the object names that
    the annotation gives, by resource.
    """

    key: Key
    node: str
    requested: Counter[str]
    allocated: dict[str, tuple[str, ...]]


def annotated_devices(vm: VirtualMachine | None) -> dict[str, tuple[str, ...]]:
    """Resource to object names, from the annotation; empty where there is none that can be read."""
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
    """The resource that a device is offered as; empty for one that is not offered."""
    vgpu = snapshot.vgpus.get(name)
    type_name = "" if vgpu is None else vgpu.status.configured or (vgpu.spec.type_name if vgpu.spec.enabled else "")
    if type_name:
        return names.vgpu_resource(type_name)
    function = snapshot.functions.get(name)
    return function.status.resource_name if function is not None and name in snapshot.claims else ""


def devices_of(snapshot: AdmissionSnapshot, resource: str) -> dict[str, str]:
    """The devices that are offered as a resource, each with its node."""
    found = {n: v.spec.node_name for n, v in snapshot.vgpus.items() if resource_of(snapshot, n) == resource}
    claimed = {n: c.spec.node_name for n, c in snapshot.claims.items() if resource_of(snapshot, n) == resource}
    return claimed | found


def describe_holder(snapshot: AdmissionSnapshot, name: str) -> str:
    """A sentence about the virtual machine that uses this device, or may; empty where none does."""
    resource = resource_of(snapshot, name)
    for key, vm in sorted(snapshot.vms.items()):
        if name in _held_names(vm, snapshot, key):
            return _held_sentence(name, key, snapshot)
    requesters = tuple(_requesters(snapshot))
    for requester in requesters:
        if any(name in allocated for allocated in requester.allocated.values()):
            return _held_sentence(name, requester.key, snapshot)
    return _possible_holder(snapshot, name, resource, requesters) if resource else ""


def _held_sentence(name: str, key: Key, snapshot: AdmissionSnapshot) -> str:
    """A stopped machine that names a device is to have it again: stopping is not enough, the name must go. Only a
    machine with an object of its own tells by name or annotation what it has.
    """
    space, name_of_vm = key
    text = f"{name} is in use with VM {name_of_vm} in namespace {space}"
    instance, vm = snapshot.instances.get(key), snapshot.vms[key]
    if vm.metadata.deletion_timestamp:
        return advice(f"{text}, which is being deleted", f"kubectl wait vm/{name_of_vm} -n {space} --for delete")
    if instance is None or instance.finished:
        why = f"{text}, which does not run and has it among its devices: take it out there, or delete the machine"
        return advice(why, f"kubectl edit vm {name_of_vm} -n {space}")
    if instance.metadata.deletion_timestamp:
        return advice(f"{text}, which is stopping", f"kubectl wait vmi/{name_of_vm} -n {space} --for delete")
    return advice(f"{text}: stop it, then take it out of its devices", _stop_command(key, vm))


def _stop_command(key: Key, vm: VirtualMachine) -> str:
    """The command that stops a machine: KubeVirt refuses ``running`` and ``runStrategy`` beside each other."""
    space, name = key
    spec = '{"running":false}' if vm.spec.running is not None else '{"runStrategy":"Halted"}'
    return f"""kubectl patch vm {name} -n {space} --type merge -p '{{"spec":{spec}}}' (or virtctl stop)"""


def _held_names(vm: VirtualMachine, snapshot: AdmissionSnapshot, key: Key) -> set[str]:
    """What a machine holds by name. Of a running one the allocation counts, and names only until it is there; of a
    stopped one the names do, as Harvester has it.
    """
    allocated: dict[str, tuple[str, ...]] = {}
    devices = vm.devices.all
    if key in snapshot.instances and not snapshot.instances[key].finished:
        allocated, devices = annotated_devices(vm), snapshot.instances[key].devices.all
    named = {
        d.name
        for d in devices
        if d.device_name not in allocated and (d.name in snapshot.vgpus or d.name in snapshot.claims)
    }
    return named | {each for given in allocated.values() for each in given}


def _requesters(snapshot: AdmissionSnapshot) -> Iterator[_Requester]:
    for key, instance in sorted(snapshot.instances.items()):
        if not instance.finished:
            allocated = annotated_devices(snapshot.vms.get(key))
            yield _Requester(key, instance.status.node_name, _count_requests(instance.devices.all), allocated)
            if instance.migration_target:  # where it has as many again, of which the annotation says nothing yet
                yield _Requester(key, instance.migration_target, _count_requests(instance.devices.all), {})
    for key, vm in sorted(snapshot.vms.items()):
        last = snapshot.instances.get(key)
        starts = vm.should_run if last is None else last.finished and vm.should_run_after(last.status.phase)
        if starts and vm.metadata.deletion_timestamp is None:
            yield _Requester(key, "", _count_requests(vm.devices.all), {})


def _count_requests(devices: tuple[DeviceRequest, ...]) -> Counter[str]:
    return Counter(each.device_name for each in devices if each.device_name)


def _possible_holder(snapshot: AdmissionSnapshot, name: str, resource: str, requesters: tuple[_Requester, ...]) -> str:
    """A machine of which nobody knows yet what it got: on the device's node it may be this one; where it has no node
    yet, it needs one of those that are left.
    """
    devices = devices_of(snapshot, resource)
    known = {each for requester in requesters for each in requester.allocated.get(resource, ())}
    unallocated = devices.keys() - known
    unknown = [a for a in requesters if a.requested[resource] > len(a.allocated.get(resource, ()))]
    running = next((a for a in unknown if a.node and a.node == devices.get(name)), None)
    if running is not None:
        where = f"VM {running.key[1]} in namespace {running.key[0]} runs on {running.node} with {resource}"
        return f"{where}, and which device it has is not known yet: {name} may be it; try again in a minute"
    need = sum(a.requested[resource] - len(a.allocated.get(resource, ())) for a in unknown)
    waiting = next((a for a in unknown if not a.node), None)
    if waiting is not None and need > len(unallocated) - 1:
        about = f"VM {waiting.key[1]} in namespace {waiting.key[0]} is about to start with {resource}"
        return f"{about} and would not find one without {name}: stop the VM first"
    return ""
