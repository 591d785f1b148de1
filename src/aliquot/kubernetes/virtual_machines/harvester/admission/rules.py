"""What all kinds have in common: names that say what they are about, and who is not judged."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, shorten_list
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def disable_command(kind: str, *objects: str) -> str:
    """The command that disables objects of a kind."""
    return f'kubectl patch {kind} {" ".join(objects)} --type merge -p \'{{"spec":{{"enabled":false}}}}\''


def enabled_vgpus_refusal(verb: str, name: str, children: tuple[str, ...]) -> str:
    """The refusal to take a GPU, or how it is cut, from enabled vGPUs."""
    single = len(children) == 1
    which = f"vGPU {shorten_list(children)} is" if single else f"vGPUs {shorten_list(children)} are"
    text = f"cannot {verb} {name} while {which} enabled"
    return advice(f"{text}: disable {'it' if single else 'them'} first", disable_command("vgpudevice", *children[:4]))


def name_errors(name: str, node: str, address: str) -> Iterator[str]:
    """An object is named after its node and PCI address: by that name everything finds it."""
    wanted = names.object_name(node, address)
    if name != wanted:
        yield f"an object for {address or 'no address'} on node {node or '(none)'} is named {wanted}, not {name}"


def missing_device_warnings(name: str, node: str, snapshot: AdmissionSnapshot) -> Iterator[str]:
    """A warning about a new object that is about nothing: it may come, as after a restore, but who mistyped should
    know. The name is also that of the function's PCIDevice.
    """
    if node not in snapshot.nodes:
        yield advice(f"there is no node {node}: objects of a node that is gone are removed", "kubectl get nodes")
    elif name not in snapshot.functions:
        why = f"node {node} has no PCIDevice {name}: nothing comes of this while it has none"
        yield advice(why, f"kubectl get pcidevices -l {names.NODE_LABEL}={node}")


def moved_errors(old: tuple[str, str], new: tuple[str, str]) -> Iterator[str]:
    """Node and address are what an object is about: another device is another object."""
    if old != new:
        yield f"node and address ({old[0]}, {old[1]}) cannot be changed: make another object"
