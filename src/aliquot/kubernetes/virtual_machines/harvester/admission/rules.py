"""Rules that the kinds share: object names, immutable addresses, and texts with commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.errors import Message
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.vgpu_pools import requesting_pool
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, shorten_list
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def disable_command(kind: str, *objects: str) -> str:
    """Return the command that disables objects of a kind."""
    return f'kubectl patch {kind} {" ".join(objects)} --type merge -p \'{{"spec":{{"enabled":false}}}}\''


def enable_command(kind: str, name: str) -> str:
    """Return the command that enables an object."""
    return f'kubectl patch {kind} {name} --type merge -p \'{{"spec":{{"enabled":true}}}}\''


def enabled_vgpus_errors(verb: str, name: str, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Yield the refusal to take a GPU or its instances from enabled vGPUs."""
    children = snapshot.enabled_vgpus(name)
    if not children:
        return
    single = len(children) == 1
    which = f"vGPU {shorten_list(children)} is" if single else f"vGPUs {shorten_list(children)} are"
    text = f"cannot {verb} {name} while {which} enabled"
    if pool := requesting_pool(snapshot.vgpus[each] for each in children):
        yield advice(
            f"{text}: VGPUPool {pool} requests that, change or delete it first", f"kubectl edit vgpupool {pool}"
        )
    else:
        yield advice(
            f"{text}: disable {'it' if single else 'them'} first", disable_command("vgpudevice", *children[:4])
        )


def name_errors(name: str, node: str, address: str) -> Iterator[Message]:
    """Yield an error if an object does not have the name of its node and PCI address, by which it is found."""
    wanted = names.object_name(node, address)
    if name != wanted:
        yield Message(
            f"an object for {address or 'no address'} on node {node or '(none)'} is named {wanted}, not {name}"
        )


def missing_device_warnings(name: str, node: str, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Warn about a new object without a device. It is allowed, because the device may come, as after a restore.

    The name is also that of the function's PCIDevice.
    """
    if node not in snapshot.nodes:
        yield advice(f"node {node} does not exist: objects of removed nodes are deleted", "kubectl get nodes")
    elif name not in snapshot.functions:
        why = f"node {node} has no PCIDevice {name}: this object has no effect until it has one"
        yield advice(why, f"kubectl get pcidevices -l {names.NODE_LABEL}={node}")


def label_warnings(kind: str, name: str, node: str, labels: Mapping[str, str]) -> Iterator[Message]:
    """Warn about a new object that its node's agent does not watch. The agent sets the label once it finds a device of
    that name, so a restored object needs nothing.
    """
    if labels.get(names.NODE_LABEL) != node:
        why = f"{name} has no label {names.NODE_LABEL}={node}, by which its node's agent finds it: it may get no status"
        yield advice(why, f"kubectl label {kind} {name} {names.NODE_LABEL}={node}")


def moved_errors(old: tuple[str, str], new: tuple[str, str]) -> Iterator[Message]:
    """Yield an error if node or address changed: another device needs another object."""
    if old != new:
        yield Message(f"node and address ({old[0]}, {old[1]}) cannot be changed: create another object")
