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
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import Key, World
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


class _Allocation(msgspec.Struct, frozen=True):
    gpus: dict[str, list[str]] | None = None
    hostdevices: dict[str, list[str]] | None = None


class _Asker(msgspec.Struct, frozen=True):
    """A machine that runs or is to run. ``node`` is empty until it is known. ``got`` are the object names that the
    annotation gives, by resource.
    """

    key: Key
    node: str
    wants: Counter[str]
    got: dict[str, tuple[str, ...]]


def allocation(machine: VirtualMachine | None) -> dict[str, tuple[str, ...]]:
    """Resource to object names, from the annotation; empty where there is none that can be read."""
    text = machine.metadata.annotations.get(names.ALLOCATION_ANNOTATION, "") if machine is not None else ""
    try:
        found = msgspec.json.decode(text, type=_Allocation) if text else _Allocation()
    except UNREADABLE:
        return {}
    out: dict[str, tuple[str, ...]] = {}
    for part in (found.gpus, found.hostdevices):
        for resource, given in (part or {}).items():
            out[resource] = tuple(dict.fromkeys((*out.get(resource, ()), *given)))
    return out


def resource_of(world: World, name: str) -> str:
    """The resource that a device is offered as; empty for one that is not offered."""
    vgpu = world.vgpus.get(name)
    type_name = "" if vgpu is None else vgpu.status.configured or (vgpu.spec.type_name if vgpu.spec.enabled else "")
    if type_name:
        return names.vgpu_resource(type_name)
    function = world.functions.get(name)
    return function.status.resource_name if function is not None and name in world.claims else ""


def devices_of(world: World, resource: str) -> dict[str, str]:
    """The devices that are offered as a resource, each with its node."""
    found = {n: v.spec.node_name for n, v in world.vgpus.items() if resource_of(world, n) == resource}
    claimed = {n: c.spec.node_name for n, c in world.claims.items() if resource_of(world, n) == resource}
    return claimed | found


def user_of(world: World, name: str) -> str:
    """A sentence about the virtual machine that uses this device, or may; empty where none does."""
    resource = resource_of(world, name)
    for key, machine in sorted(world.machines.items()):
        if name in _names(machine, world, key):
            return _in_use(name, key, world)
    askers = tuple(_askers(world))
    for asker in askers:
        if any(name in got for got in asker.got.values()):
            return _in_use(name, asker.key, world)
    return _perhaps(world, name, resource, askers) if resource else ""


def _in_use(name: str, key: Key, world: World) -> str:
    """A stopped machine that names a device is to have it again: stopping is not enough, the name must go. Only a
    machine with an object of its own tells by name or annotation what it has.
    """
    space, machine = key
    text = f"{name} is in use with VM {machine} in namespace {space}"
    instance, whole = world.instances.get(key), world.machines[key]
    if whole.metadata.deletion_timestamp:
        return advice(f"{text}, which is being deleted", f"kubectl wait vm/{machine} -n {space} --for delete")
    if instance is None or instance.over:
        why = f"{text}, which does not run and has it among its devices: take it out there, or delete the machine"
        return advice(why, f"kubectl edit vm {machine} -n {space}")
    if instance.metadata.deletion_timestamp:
        return advice(f"{text}, which is stopping", f"kubectl wait vmi/{machine} -n {space} --for delete")
    return advice(f"{text}: stop it, then take it out of its devices", _stopping(key, whole))


def _stopping(key: Key, machine: VirtualMachine) -> str:
    """The command that stops a machine: KubeVirt refuses ``running`` and ``runStrategy`` beside each other."""
    space, name = key
    spec = '{"running":false}' if machine.spec.running is not None else '{"runStrategy":"Halted"}'
    return f"""kubectl patch vm {name} -n {space} --type merge -p '{{"spec":{spec}}}' (or virtctl stop)"""


def _names(machine: VirtualMachine, world: World, key: Key) -> set[str]:
    """What a machine holds by name. Of a running one the allocation counts, and names only until it is there; of a
    stopped one the names do, as Harvester has it.
    """
    got: dict[str, tuple[str, ...]] = {}
    devices = machine.devices.all
    if key in world.instances and not world.instances[key].over:
        got, devices = allocation(machine), world.instances[key].devices.all
    named = {d.name for d in devices if d.device_name not in got and (d.name in world.vgpus or d.name in world.claims)}
    return named | {each for given in got.values() for each in given}


def _askers(world: World) -> Iterator[_Asker]:
    for key, instance in sorted(world.instances.items()):
        if not instance.over:
            got = allocation(world.machines.get(key))
            yield _Asker(key, instance.status.node_name, _wants(instance.devices.all), got)
            if instance.target:  # where it has as many again, of which the annotation says nothing yet
                yield _Asker(key, instance.target, _wants(instance.devices.all), {})
    for key, machine in sorted(world.machines.items()):
        last = world.instances.get(key)
        starts = machine.wanted if last is None else last.over and machine.wanted_after(last.status.phase)
        if starts and machine.metadata.deletion_timestamp is None:
            yield _Asker(key, "", _wants(machine.devices.all), {})


def _wants(devices: tuple[DeviceRequest, ...]) -> Counter[str]:
    return Counter(each.device_name for each in devices if each.device_name)


def _perhaps(world: World, name: str, resource: str, askers: tuple[_Asker, ...]) -> str:
    """A machine of which nobody knows yet what it got: on the device's node it may be this one; where it has no node
    yet, it needs one of those that are left.
    """
    devices = devices_of(world, resource)
    known = {each for asker in askers for each in asker.got.get(resource, ())}
    open_ones = devices.keys() - known
    unknown = [a for a in askers if a.wants[resource] > len(a.got.get(resource, ()))]
    here = next((a for a in unknown if a.node and a.node == devices.get(name)), None)
    if here is not None:
        where = f"VM {here.key[1]} in namespace {here.key[0]} runs on {here.node} with {resource}"
        return f"{where}, and which device it has is not known yet: {name} may be it; try again in a minute"
    need = sum(a.wants[resource] - len(a.got.get(resource, ())) for a in unknown)
    waiting = next((a for a in unknown if not a.node), None)
    if waiting is not None and need > len(open_ones) - 1:
        about = f"VM {waiting.key[1]} in namespace {waiting.key[0]} is about to start with {resource}"
        return f"{about} and would not find one without {name}: stop the VM first"
    return ""
