"""Whether a machine can have the devices that it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.core.config.text.node_reader import did_you_mean
from aliquot.core.planner.vgpu import vm_rules as vm
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


def device_errors(requested: VmDevices, cluster: VmClusterState) -> Iterator[str]:
    """What is wrong with them whatever else runs: unknown resources, several nodes, several vGPUs, ramFB."""
    known = resource_meanings(cluster.snapshot)
    plugin = [each for each in requested.all if not each.claim_name]
    unknown = [each for each in plugin if not _is_known(each.device_name, known, cluster)]
    for each in unknown:
        suggestion = _suggestion(each.device_name, known)
        yield f"resource name {each.device_name or '(none)'} of {each.name} not found{suggestion}"
    if unknown:
        return
    entries = [each for each in plugin if each.device_name in known]
    planned = [vm_device(each, known[each.device_name], cluster.snapshot) for each in entries]
    nodes = {node: each.name for each in plugin if (node := node_of_device(each.name, cluster.snapshot))}
    if len(nodes) > 1:
        where = ", ".join(f"{name} is on {node}" for node, name in sorted(nodes.items()))
        yield f"the devices are not on the same node: {where}"
    yield from (each.message for each in vm.check(planned) if each.rule not in ("ONE_NODE", "RAMFB"))
    claimed = [vm_device(each, ResourceMeaning(), cluster.snapshot) for each in requested.gpus or () if each.claim_name]
    yield from _ramfb_errors([*planned, *claimed])


def check_fit(demand: VmDemand, cluster: VmClusterState) -> FitResult:
    """Whether it gets them beside the machines that run, wait, or were admitted a moment ago."""
    return fit(cluster.capacity, [demand])


def _ramfb_errors(planned: list[vm.VmDevice]) -> Iterator[str]:
    with_ramfb = [each.gpu.pci for each in planned if each.ramfb]
    step = f": set virtualGPUOptions.display.ramFB.enabled to false on all but one of {', '.join(with_ramfb)}"
    for number, each in enumerate(vm.ramfb(planned, "nvidia")):
        yield each.message + (step if len(with_ramfb) > 1 and not number else "")


def _suggestion(name: str, known: Mapping[str, ResourceMeaning]) -> str:
    """What was meant by a resource that nobody knows, and the next command."""
    if name in type_names_by_resource():
        return advice(f": no VGPUDevice is enabled as {type_names_by_resource()[name]}", "kubectl get vgpudevices")
    near = did_you_mean(name, known) or did_you_mean(vgpu_resource(name), known)
    return f"{near}: see aliquot capacity"


def _is_known(resource: str, known: dict[str, ResourceMeaning], cluster: VmClusterState) -> bool:
    """Ours, a USB device's, or one that KubeVirt's settings permit: what others offer is not for us to judge. Where
    those settings cannot be read nothing is unknown: KubeVirt will say it.
    """
    if resource in known or any(each.status.resource_name == resource for each in cluster.snapshot.usb.values()):
        return True
    return cluster.permitted is None or resource in cluster.permitted
