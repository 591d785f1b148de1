"""Checks of the devices that a VM requests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.core.planner.vgpu import vm_rules as vm
from aliquot.errors import Message
from aliquot.kubernetes.kinds.harvester_names import vgpu_resource
from aliquot.kubernetes.kinds.kubevirt import VmDevices
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import (
    ResourceMeaning,
    VmClusterState,
    node_of_device,
    resource_meanings,
    type_names_by_resource,
    vm_device,
)
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand
from aliquot.kubernetes.virtual_machines.kubevirt.fit import FitResult, fit

_VGPU = re.compile(r"-\d+[A-Za-z]*$")
"""Matches a resource that is meant to be a vGPU: a type's name ends with its size and series."""


def device_errors(requested: VmDevices, cluster: VmClusterState) -> Iterator[Message]:
    """Yield errors that do not depend on other VMs: unknown resources, several nodes, several vGPUs, ramFB."""
    known = resource_meanings(cluster.snapshot)
    plugin = [each for each in requested.all if not each.claim_name]
    unknown = [each for each in plugin if not _is_known(each.device_name, known, cluster)]
    for each in unknown:
        suggestion = _suggestion(each.device_name, known)
        text = f"resource name {each.device_name or '(none)'} of {each.name} not found{suggestion.sentence}"
        yield Message(text, suggestion.next_step)
    if unknown:
        return
    entries = [each for each in plugin if each.device_name in known]
    planned = [vm_device(each, known[each.device_name], cluster.snapshot) for each in entries]
    nodes = {node: each.name for each in plugin if (node := node_of_device(each.name, cluster.snapshot))}
    if len(nodes) > 1:
        where = ", ".join(f"{name} is on {node}" for node, name in sorted(nodes.items()))
        yield Message(f"the devices are not on the same node: {where}")
    yield from (Message(each.message) for each in vm.check(planned) if each.rule not in ("ONE_NODE", "RAMFB"))
    claimed = [vm_device(each, ResourceMeaning(), cluster.snapshot) for each in requested.gpus or () if each.claim_name]
    yield from _ramfb_errors([*planned, *claimed])


def check_fit(demand: VmDemand, cluster: VmClusterState) -> FitResult:
    """Report whether the VM gets its devices beside the VMs that run, wait, or were admitted moments ago."""
    return fit(cluster.capacity, [demand])


def _ramfb_errors(planned: list[vm.VmDevice]) -> Iterator[Message]:
    with_ramfb = [each.gpu.pci for each in planned if each.ramfb]
    step = f": set virtualGPUOptions.display.ramFB.enabled to false on all but one of {', '.join(with_ramfb)}"
    for number, each in enumerate(vm.ramfb(planned, "nvidia")):
        yield Message(each.message + (step if len(with_ramfb) > 1 and not number else ""))


def _suggestion(name: str, known: Mapping[str, ResourceMeaning]) -> Message:
    """Return the resource that an unknown name probably means, and the next command."""
    if name in type_names_by_resource():
        return advice(f": no VGPUDevice is enabled as {type_names_by_resource()[name]}", "kubectl get vgpudevices")
    vgpus = [each for each, meaning in known.items() if meaning.type is not None]
    for words in (vgpus, type_names_by_resource()) if _VGPU.search(name) else (known,):
        if near := did_you_mean(name, words) or did_you_mean(vgpu_resource(name), words):
            return advice(near, "kubectl get vgpudevices" if _VGPU.search(name) else "aliquot capacity")
    return Message("", "aliquot capacity")


def _is_known(resource: str, known: dict[str, ResourceMeaning], cluster: VmClusterState) -> bool:
    """Report whether a resource is ours, a USB device's, or permitted by KubeVirt's settings, which may list foreign
    devices.

    If the settings cannot be read, every resource counts as known: KubeVirt itself then rejects unknown ones.
    """
    if resource in known or any(each.status.resource_name == resource for each in cluster.snapshot.usb.values()):
        return True
    return cluster.permitted is None or resource in cluster.permitted
