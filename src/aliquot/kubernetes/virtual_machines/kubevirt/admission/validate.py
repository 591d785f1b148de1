"""Whether a machine can have the devices that it asks for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.core.config.text.node_reader import close
from aliquot.core.planner.vgpu import vm_rules as vm
from aliquot.kubernetes.kinds.harvester_names import vgpu_resource
from aliquot.kubernetes.kinds.kubevirt import Devices
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import (
    Cluster,
    Meaning,
    meanings,
    node_of,
    resources,
    vm_device,
)
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import Demand
from aliquot.kubernetes.virtual_machines.kubevirt.fit import Fit, fit


def devices(asked: Devices, cluster: Cluster) -> Iterator[str]:
    """What is wrong with them whatever else runs: unknown resources, several nodes, several vGPUs, ramFB."""
    known = meanings(cluster.world)
    plugin = [each for each in asked.all if not each.claim_name]
    unknown = [each for each in plugin if not _known(each.device_name, known, cluster)]
    for each in unknown:
        yield f"resource name {each.device_name or '(none)'} of {each.name} not found{_meant(each.device_name, known)}"
    if unknown:
        return
    entries = [each for each in plugin if each.device_name in known]
    planned = [vm_device(each, known[each.device_name], cluster.world) for each in entries]
    nodes = {node: each.name for each in plugin if (node := node_of(each.name, cluster.world))}
    if len(nodes) > 1:
        where = ", ".join(f"{name} is on {node}" for node, name in sorted(nodes.items()))
        yield f"the devices are not on the same node: {where}"
    yield from (each.message for each in vm.check(planned) if each.rule not in ("ONE_NODE", "RAMFB"))
    claimed = [vm_device(each, Meaning(), cluster.world) for each in asked.gpus or () if each.claim_name]
    yield from _ramfb([*planned, *claimed])


def capacity(asked: Demand, cluster: Cluster) -> Fit:
    """Whether it gets them beside the machines that run, wait, or were admitted a moment ago."""
    return fit(cluster.capacity, [asked])


def _ramfb(planned: list[vm.VmDevice]) -> Iterator[str]:
    having = [each.gpu.pci for each in planned if each.ramfb]
    step = f": set virtualGPUOptions.display.ramFB.enabled to false on all but one of {', '.join(having)}"
    for number, each in enumerate(vm.ramfb(planned, "nvidia")):
        yield each.message + (step if len(having) > 1 and not number else "")


def _meant(name: str, known: Mapping[str, Meaning]) -> str:
    """What was meant by a resource that nobody knows, and the next command."""
    if name in resources():
        return advice(f": no VGPUDevice is enabled as {resources()[name]}", "kubectl get vgpudevices")
    near = close(name, known) or close(vgpu_resource(name), known)
    return f"{near}: see aliquot capacity"


def _known(resource: str, known: dict[str, Meaning], cluster: Cluster) -> bool:
    """Ours, a USB device's, or one that KubeVirt's settings permit: what others offer is not for us to judge. Where
    those settings cannot be read nothing is unknown: KubeVirt will say it.
    """
    if resource in known or any(each.status.resource_name == resource for each in cluster.world.usb.values()):
        return True
    return cluster.permitted is None or resource in cluster.permitted
