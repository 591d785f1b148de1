"""Device counts of each resource, their holders, and how many more VMs can get a device. Pure.

``measure`` counts; ``fit.fit`` decides whether additional VMs can all be placed. The counts come from VMs, not from
annotations: an allocation annotation is written late, and a stopped VM holds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import quantity
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import PCIDevice, PCIDeviceClaim, VGPUDevice
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand, demands

_VENDOR = "nvidia.com/"
_CONTAINERS = ("nvidia.com/gpu", "nvidia.com/mig-")
"""Prefixes of the resources of containers."""


class ClusterObservation(msgspec.Struct, frozen=True):
    """The cluster's objects that capacity depends on."""

    nodes: tuple[Node, ...] = ()
    vgpus: tuple[VGPUDevice, ...] = ()
    functions: tuple[PCIDevice, ...] = ()
    claims: tuple[PCIDeviceClaim, ...] = ()
    vms: tuple[VirtualMachine, ...] = ()
    instances: tuple[VirtualMachineInstance, ...] = ()
    reserved: tuple[VmDemand, ...] = ()
    """Demands of VMs that were admitted moments ago: ``vms`` may not show them yet."""


class NodeCapacity(msgspec.Struct, frozen=True):
    """A resource on a node."""

    node: str
    total: int = 0
    """Devices that kubelet knows (node.status.capacity)."""
    usable: int = 0
    """Devices that kubelet considers healthy (node.status.allocatable)."""
    configured: int = 0
    """Devices that the objects state as created."""
    allocated: int = 0
    """Devices of running VMs."""
    ready: bool = True
    """Kubelet answers and the node is not cordoned."""

    @property
    def free(self) -> int:
        """Devices that kubelet could allocate now."""
        return max(0, self.usable - self.allocated)

    @property
    def promised(self) -> int:
        """Devices that are free once kubelet knows all configured ones: just after its start, kubelet's counts are
        0.
        """
        return max(0, max(self.usable, self.configured) - self.allocated)


class ResourceCapacity(msgspec.Struct, frozen=True):
    """A resource in the whole cluster."""

    resource: str
    nodes: tuple[NodeCapacity, ...] = ()
    """The nodes that have a device of the resource, by name."""
    pending: int = 0
    """Requested by VMs that have no node yet."""
    stopped: int = 0
    """Requested by VMs that should not run."""

    @property
    def total(self) -> int:
        return sum(each.total for each in self.nodes)

    @property
    def usable(self) -> int:
        return sum(each.usable for each in self.nodes)

    @property
    def allocated(self) -> int:
        return sum(each.allocated for each in self.nodes)

    @property
    def allocatable(self) -> int:
        """Devices that can be allocated on ready nodes, less the requests of waiting VMs."""
        return max(0, sum(each.free for each in self.nodes if each.ready) - self.pending)

    @property
    def set_aside(self) -> int:
        """Free devices on nodes that accept no VMs now."""
        return sum(each.free for each in self.nodes if not each.ready)


class Capacity(msgspec.Struct, frozen=True):
    """The capacity of the cluster."""

    resources: Mapping[str, ResourceCapacity]
    """By resource, sorted. A resource that no node offers any more is present with 0."""
    running: tuple[VmDemand, ...] = ()
    waiting: tuple[VmDemand, ...] = ()
    stopped: tuple[VmDemand, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = {}
    """The nodes' labels, by node name."""


def measure(observation: ClusterObservation) -> Capacity:
    """Count the devices of every GPU resource for VMs.

    These are the resources that kubelets or objects know or knew, and those that VMs request.
    """
    running, waiting, stopped = demands(observation.vms, observation.instances)
    waiting = (*waiting, *_unlisted_reservations(observation, (*running, *waiting)))
    configured_counts = count_configured(observation.vgpus, observation.functions, observation.claims)
    held: Counter[tuple[str, str]] = Counter()
    for each in running:
        held.update({(node, resource): count for node in each.nodes for resource, count in each.counts.items()})
    known = {
        resource for node in observation.nodes for resource in node.status.capacity if is_vm_gpu_resource(resource)
    }
    known |= {resource for _, resource in configured_counts} | _requested_resources(observation)
    known |= {name for each in (*running, *waiting, *stopped) for name in each.counts if is_vm_gpu_resource(name)}
    node_capacities = {
        resource: _node_capacities(resource, observation.nodes, configured_counts, held) for resource in known
    }
    resources = {
        resource: ResourceCapacity(
            resource, node_capacities[resource], _total(waiting, resource), _total(stopped, resource)
        )
        for resource in sorted(known)
    }
    labels = {node.name: node.metadata.labels for node in observation.nodes}
    return Capacity(resources, running, waiting, stopped, labels)


def is_vm_gpu_resource(resource: str) -> bool:
    """Report whether a resource is, by its name, a GPU or a part of a GPU for VMs."""
    return resource.startswith(_VENDOR) and not resource.startswith(_CONTAINERS)


def count_configured(
    vgpus: Iterable[VGPUDevice], functions: Iterable[PCIDevice], claims: Iterable[PCIDeviceClaim]
) -> Counter[tuple[str, str]]:
    """Count the devices that the objects state as created, by node and resource.

    These are vGPUs and functions that are passed through. A claim that only reserves the function of a vGPU is not
    counted again.
    """
    found: Counter[tuple[str, str]] = Counter()
    for vgpu in vgpus:
        if vgpu.status.state == names.CONFIGURED and vgpu.status.configured:
            found[vgpu.spec.node_name, names.vgpu_resource(vgpu.status.configured)] += 1
    resources = {each.name: each.status.resource_name for each in functions}
    for claim in claims:
        reserves = claim.metadata.annotations.get(names.SKIP_BINDING_ANNOTATION) == "true"
        resource = resources.get(claim.name, "")
        if claim.status.passthrough_enabled and not reserves and resource:
            found[claim.spec.node_name, resource] += 1
    return found


def _requested_resources(observation: ClusterObservation) -> set[str]:
    """Return the resources of requested vGPUs, whether or not these exist."""
    return {names.vgpu_resource(each.spec.type_name) for each in observation.vgpus if each.spec.type_name}


def _unlisted_reservations(observation: ClusterObservation, counted: tuple[VmDemand, ...]) -> tuple[VmDemand, ...]:
    """Return the demands of admitted VMs beyond those that are counted already."""
    found = []
    for each in observation.reserved:
        has: Counter[str] = Counter()
        for other in counted:
            has.update(other.counts if other.key == each.key else {})
        more = {resource: count - has[resource] for resource, count in each.counts.items() if count > has[resource]}
        found += [msgspec.structs.replace(each, counts=more)] if more else []
    return tuple(found)


def _node_capacities(
    resource: str,
    nodes: Iterable[Node],
    configured_counts: Mapping[tuple[str, str], int],
    held: Mapping[tuple[str, str], int],
) -> tuple[NodeCapacity, ...]:
    """Return the counts of the nodes that exist. A removed node's devices count no longer."""
    found = []
    for node in sorted(nodes, key=lambda each: each.name):
        at = (node.name, resource)
        total, usable = (
            _device_count(amounts.get(resource, "0")) for amounts in (node.status.capacity, node.status.allocatable)
        )
        if total or usable or configured_counts.get(at) or held.get(at):
            found.append(
                NodeCapacity(node.name, total, usable, configured_counts.get(at, 0), held.get(at, 0), _is_ready(node))
            )
    return tuple(found)


def _is_ready(node: Node) -> bool:
    """Report whether a node accepts VMs. A node without a Ready condition counts as ready."""
    ready_status = next((each.status for each in node.status.conditions if each.type == "Ready"), "True")
    return ready_status == "True" and not node.spec.unschedulable


def _device_count(text: str) -> int:
    """Parse a device count; kubelet writes 1000 as ``1k``."""
    found = quantity.read(text)
    return 0 if found is None else max(0, int(found.value))


def _total(found: Iterable[VmDemand], resource: str) -> int:
    return sum(each.counts.get(resource, 0) for each in found)
