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
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import Demand, demands

_VENDOR = "nvidia.com/"
_CONTAINERS = ("nvidia.com/gpu", "nvidia.com/mig-")
"""Resources of containers, by how they begin."""


class Seen(msgspec.Struct, frozen=True):
    """What the cluster looks like. ``reserved`` is what machines were admitted with a moment ago: ``machines`` may
    not show it yet."""

    nodes: tuple[Node, ...] = ()
    vgpus: tuple[VGPUDevice, ...] = ()
    functions: tuple[PCIDevice, ...] = ()
    claims: tuple[PCIDeviceClaim, ...] = ()
    machines: tuple[VirtualMachine, ...] = ()
    instances: tuple[VirtualMachineInstance, ...] = ()
    reserved: tuple[Demand, ...] = ()


class Place(msgspec.Struct, frozen=True):
    """One resource on one node. ``total`` and ``usable`` are kubelet's figures (node.status.capacity and allocatable:
    devices that it knows, and those of them that are healthy); ``configured`` is how many the objects say are made.
    ``allocated`` is what running machines have there. ``ready``: kubelet answers, and the node is not cordoned.
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


class Figure(msgspec.Struct, frozen=True):
    """One resource in the whole cluster. ``pending`` is asked for by machines that have no node yet, ``stopped`` by
    machines that are not to run. ``places`` by node name, those without any device of the resource left out.
    """

    resource: str
    places: tuple[Place, ...] = ()
    pending: int = 0
    stopped: int = 0

    @property
    def total(self) -> int:
        return sum(each.total for each in self.places)

    @property
    def usable(self) -> int:
        return sum(each.usable for each in self.places)

    @property
    def allocated(self) -> int:
        return sum(each.allocated for each in self.places)

    @property
    def allocatable(self) -> int:
        """How many more can be given out: on nodes that take machines, less what waiting machines ask for."""
        return max(0, sum(each.free for each in self.places if each.ready) - self.pending)

    @property
    def set_aside(self) -> int:
        """Free, but on nodes that take no machines now."""
        return sum(each.free for each in self.places if not each.ready)


class Capacity(msgspec.Struct, frozen=True):
    """``figures`` by resource, sorted; resources that no node offers any more are there with 0. ``labels`` are the
    nodes' own, by node name.
    """

    figures: Mapping[str, Figure]
    running: tuple[Demand, ...] = ()
    waiting: tuple[Demand, ...] = ()
    stopped: tuple[Demand, ...] = ()
    labels: Mapping[str, Mapping[str, str]] = {}


def measure(seen: Seen) -> Capacity:
    """The figures of every resource of GPUs for virtual machines: those that kubelets or objects know or knew, and
    those that machines ask for.
    """
    running, waiting, stopped = demands(seen.machines, seen.instances)
    waiting = (*waiting, *_unseen(seen, (*running, *waiting)))
    made = configured(seen.vgpus, seen.functions, seen.claims)
    held: Counter[tuple[str, str]] = Counter()
    for each in running:
        held.update({(node, resource): count for node in each.nodes for resource, count in each.counts.items()})
    known = {resource for node in seen.nodes for resource in node.status.capacity if ours(resource)}
    known |= {resource for _, resource in made} | _named(seen)
    known |= {name for each in (*running, *waiting, *stopped) for name in each.counts if ours(name)}
    places = {resource: _places(resource, seen.nodes, made, held) for resource in known}
    figures = {
        resource: Figure(resource, places[resource], _sum(waiting, resource), _sum(stopped, resource))
        for resource in sorted(known)
    }
    labels = {node.name: node.metadata.labels for node in seen.nodes}
    return Capacity(figures, running, waiting, stopped, labels)


def ours(resource: str) -> bool:
    """Whether a resource is, by its name, a GPU or a part of one for virtual machines."""
    return resource.startswith(_VENDOR) and not resource.startswith(_CONTAINERS)


def configured(
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


def _named(seen: Seen) -> set[str]:
    """Resources of vGPUs that should be there, whether or not they are."""
    return {names.vgpu_resource(each.spec.type_name) for each in seen.vgpus if each.spec.type_name}


def _unseen(seen: Seen, counted: tuple[Demand, ...]) -> tuple[Demand, ...]:
    """What was admitted and has not come yet, beyond what its machine is counted with already."""
    found = []
    for each in seen.reserved:
        has: Counter[str] = Counter()
        for other in counted:
            has.update(other.counts if other.key == each.key else {})
        more = {resource: count - has[resource] for resource, count in each.counts.items() if count > has[resource]}
        found += [msgspec.structs.replace(each, counts=more)] if more else []
    return tuple(found)


def _places(
    resource: str, nodes: Iterable[Node], made: Mapping[tuple[str, str], int], held: Mapping[tuple[str, str], int]
) -> tuple[Place, ...]:
    """Of nodes that there are: what a machine had on a node that was removed is nobody's any more."""
    found = []
    for node in sorted(nodes, key=lambda each: each.name):
        at = (node.name, resource)
        total, usable = (
            _count(amounts.get(resource, "0")) for amounts in (node.status.capacity, node.status.allocatable)
        )
        if total or usable or made.get(at) or held.get(at):
            found.append(Place(node.name, total, usable, made.get(at, 0), held.get(at, 0), _ready(node)))
    return tuple(found)


def _ready(node: Node) -> bool:
    """A node that says nothing of its readiness counts as ready."""
    said = next((each.status for each in node.status.conditions if each.type == "Ready"), "True")
    return said == "True" and not node.spec.unschedulable


def _count(text: str) -> int:
    """A count of devices; kubelet writes a thousand of them as ``1k``."""
    found = quantity.read(text)
    return 0 if found is None else max(0, int(found.value))


def _sum(found: Iterable[Demand], resource: str) -> int:
    return sum(each.counts.get(resource, 0) for each in found)
