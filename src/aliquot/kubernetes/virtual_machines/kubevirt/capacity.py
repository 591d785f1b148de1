"""How many devices of each resource there are, who has them, and how many more machines can get them. Pure.

``measure`` counts; ``fit.fit`` says whether machines that come in addition can all be placed. Machines are counted, not
annotations: an annotation about an allocation comes late, and a stopped machine holds nothing.
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
"""Resources of containers, by how they begin."""


class ClusterObservation(msgspec.Struct, frozen=True):
    """What the cluster looks like. ``reserved`` is what machines were admitted with a moment ago: ``vms`` may
    not show it yet.
    """

    nodes: tuple[Node, ...] = ()
    vgpus: tuple[VGPUDevice, ...] = ()
    functions: tuple[PCIDevice, ...] = ()
    claims: tuple[PCIDeviceClaim, ...] = ()
    vms: tuple[VirtualMachine, ...] = ()
    instances: tuple[VirtualMachineInstance, ...] = ()
    reserved: tuple[VmDemand, ...] = ()


class NodeCapacity(msgspec.Struct, frozen=True):
    """One resource on one node. ``total`` and ``usable`` are kubelet's figures (node.status.capacity and allocatable:
    devices that it knows, and those of them that are healthy); ``configured`` is how many the objects say are
    made. ``allocated`` is what running machines have there. ``ready``: kubelet answers, and the node is not cordoned.
    """

    node: str
    total: int = 0
    usable: int = 0
    configured: int = 0
    allocated: int = 0
    ready: bool = True

    @property
    def free(self) -> int:
        """What kubelet could hand out now."""
        return max(0, self.usable - self.allocated)

    @property
    def promised(self) -> int:
        """What is free once kubelet knows all that is configured: its figures are 0 for a moment after it starts."""
        return max(0, max(self.usable, self.configured) - self.allocated)


class ResourceCapacity(msgspec.Struct, frozen=True):
    """One resource in the whole cluster. ``pending`` is asked for by machines that have no node yet, ``stopped`` by
    machines that are not to run. ``nodes`` by node name, those without any device of the resource left out.
    """

    resource: str
    nodes: tuple[NodeCapacity, ...] = ()
    pending: int = 0
    stopped: int = 0

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
        """How many more can be given out: on nodes that take machines, less what waiting machines ask for."""
        return max(0, sum(each.free for each in self.nodes if each.ready) - self.pending)

    @property
    def set_aside(self) -> int:
        """Free, but on nodes that take no machines now."""
        return sum(each.free for each in self.nodes if not each.ready)


class Capacity(msgspec.Struct, frozen=True):
    """``resources`` by resource, sorted; resources that no node offers any more are there with 0. ``labels`` are the
    nodes' own, by node name.
    """

    resources: Mapping[str, ResourceCapacity]
    running: tuple[VmDemand, ...] = ()
    waiting: tuple[VmDemand, ...] = ()
    stopped: tuple[VmDemand, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = {}


def measure(observation: ClusterObservation) -> Capacity:
    """The figures of every resource of GPUs for virtual machines: those that kubelets or objects know or knew, and
    those that machines ask for.
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
    """Whether a resource is, by its name, a GPU or a part of one for virtual machines."""
    return resource.startswith(_VENDOR) and not resource.startswith(_CONTAINERS)


def count_configured(
    vgpus: Iterable[VGPUDevice], functions: Iterable[PCIDevice], claims: Iterable[PCIDeviceClaim]
) -> Counter[tuple[str, str]]:
    """How many devices the objects say are made, by node and resource: vGPUs, and functions that are handed out whole.
    A claim that only reserves a function (a vGPU's) is not counted again.
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
    """Resources of vGPUs that should be there, whether or not they are."""
    return {names.vgpu_resource(each.spec.type_name) for each in observation.vgpus if each.spec.type_name}


def _unlisted_reservations(observation: ClusterObservation, counted: tuple[VmDemand, ...]) -> tuple[VmDemand, ...]:
    """What was admitted and has not come yet, beyond what its machine is counted with already."""
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
    """Of nodes that there are: what a machine had on a node that was removed is nobody's any more."""
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
    """A node that says nothing of its readiness counts as ready."""
    ready_status = next((each.status for each in node.status.conditions if each.type == "Ready"), "True")
    return ready_status == "True" and not node.spec.unschedulable


def _device_count(text: str) -> int:
    """A count of devices; kubelet writes a thousand of them as ``1k``."""
    found = quantity.read(text)
    return 0 if found is None else max(0, int(found.value))


def _total(found: Iterable[VmDemand], resource: str) -> int:
    return sum(each.counts.get(resource, 0) for each in found)
