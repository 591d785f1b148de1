"""The decision whether more VMs can get the devices that they request. Pure.

Sums are not enough: the devices of a VM must be on one node. VMs that wait already, or were admitted and do not exist
yet, come first. A VM releases its current devices when it is started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, ResourceCapacity, is_vm_gpu_resource
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand

replace = msgspec.structs.replace
_MAX_STEPS, _MAX_VMS = 20_000, 200
"""Limits of the placement search, in steps and VMs. Beyond them only sums are compared: admitting a VM that may wait is
better than rejecting one that may fit.
"""

Free = dict[str, dict[str, int]]
"""Free devices by node and resource."""


class FitResult(msgspec.Struct, frozen=True):
    """The result of a fit check."""

    fits: bool
    resource: str = ""
    """The resource that is short."""
    sentence: str = ""
    """Why the VMs do not fit, or which of them must wait for a node that accepts no VMs now."""
    next_step: str = ""
    """The command to type if they do not fit."""


def fit(capacity: Capacity, wanted: Sequence[VmDemand]) -> FitResult:
    """Report whether the VMs in ``wanted`` get their devices.

    A VM that exists already (same key) counts with its new request, not with its current devices. A VM that requests no
    more than it has or waits for always fits.
    """
    wanted = tuple(each for each in wanted if not _is_satisfied(capacity, each))
    resources = {resource for each in wanted for resource in each.counts if is_vm_gpu_resource(resource)}
    if not resources:
        return FitResult(True)
    keys = {each.key for each in wanted}
    free = _free_by_node(capacity, resources, keys)
    before = [each for each in capacity.waiting if each.key not in keys and _uses_any(each, resources)]
    before = [each for each in before if _can_place((each,), free, capacity, resources)]
    if not _can_place((*before, *wanted), free, capacity, resources):
        return _shortage(capacity, wanted, before, free)
    closed = _unready_nodes(capacity) & set(free)
    ready = {node: amounts for node, amounts in free.items() if node not in closed}
    if not closed or _can_place((*before, *wanted), ready, capacity, resources):
        return FitResult(True)
    where = ", ".join(sorted(closed))
    return FitResult(True, sorted(resources)[0], f"it fits, but waits for a node that accepts no VMs now ({where})")


def explain_fit(capacity: Capacity, wanted: Sequence[VmDemand]) -> FitResult:
    """Answer a person who asks: ``fit``, and whether the VMs wait for devices that kubelets do not offer now.

    A kubelet offers nothing for seconds after its start, and as long as the node's agent does not run.
    """
    found = fit(capacity, wanted)
    if not found.fits or found.sentence:
        return found
    resources, late = {}, set()
    for name, figure in capacity.resources.items():
        late |= {each.node for each in figure.nodes if each.usable < each.configured}
        nodes = tuple(replace(each, configured=0) for each in figure.nodes)
        resources[name] = replace(figure, nodes=nodes)
    now = fit(replace(capacity, resources=resources), wanted)
    if now.fits and not now.sentence:
        return found
    where = ", ".join(sorted(late))
    text = f"it fits, but waits for devices that a node does not offer now ({where}): does its agent run?"
    return FitResult(True, now.resource, text)


def _is_satisfied(capacity: Capacity, wanted: VmDemand) -> bool:
    """Report whether the VM requests nothing beyond what it has or waits for."""
    has: dict[str, int] = {}
    for each in (*capacity.running, *capacity.waiting):
        if each.key == wanted.key:
            has = {name: has.get(name, 0) + each.counts.get(name, 0) for name in (*has, *each.counts)}
    return all(has.get(resource, 0) >= count for resource, count in wanted.counts.items())


def _free_by_node(capacity: Capacity, resources: Iterable[str], keys: set[tuple[str, str]]) -> Free:
    """Return the devices that each node could allocate, including those that the VMs in ``wanted`` have there."""
    found: Free = {node: dict.fromkeys(resources, 0) for node in capacity.labels}
    own = [each for each in capacity.running if each.key in keys]
    for resource in resources:
        node_capacities = capacity.resources[resource].nodes if resource in capacity.resources else ()
        for at in node_capacities:
            back = sum(each.counts.get(resource, 0) for each in own if at.node in each.nodes)
            found[at.node][resource] = max(0, max(at.usable, at.configured) - at.allocated + back)
    return {node: amounts for node, amounts in found.items() if any(amounts.values())}


def _unready_nodes(capacity: Capacity) -> set[str]:
    return {each.node for figure in capacity.resources.values() for each in figure.nodes if not each.ready}


def _uses_any(demand: VmDemand, resources: Iterable[str]) -> bool:
    return any(demand.counts.get(resource) for resource in resources)


# -- placement


class _Search:
    """A search that places each VM on one node. Equal VMs are placed in the order of nodes, so that no arrangement
    is tried twice.
    """

    def __init__(self, free: Free, vms: Sequence[tuple[dict[str, int], tuple[str, ...]]]) -> None:
        self._free = {node: dict(amounts) for node, amounts in free.items()}
        self._vms = vms
        self.steps = 0

    def run(self, index: int = 0, first: int = 0) -> bool:
        if index == len(self._vms):
            return True
        counts, nodes = self._vms[index]
        for at in range(first, len(nodes)):
            self.steps += 1
            if self.steps > _MAX_STEPS:
                return False
            amounts = self._free[nodes[at]]
            if any(amounts[resource] < count for resource, count in counts.items()):
                continue
            self._take(amounts, counts, 1)
            same = index + 1 < len(self._vms) and self._vms[index + 1] == (counts, nodes)
            if self.run(index + 1, at if same else 0):
                return True
            self._take(amounts, counts, -1)
        return False

    def _take(self, amounts: dict[str, int], counts: Mapping[str, int], sign: int) -> None:
        for resource, count in counts.items():
            amounts[resource] -= sign * count


def _can_place(demands: Sequence[VmDemand], free: Free, capacity: Capacity, resources: set[str]) -> bool:
    """Report whether all VMs can be placed; if the search takes too long, whether the sums allow it."""
    vms = []
    for each in demands:
        counts = {name: count for name, count in each.counts.items() if name in resources}
        allowed = tuple(node for node in sorted(free) if _selector_allows(each, capacity.labels.get(node, {})))
        vms.append((counts, allowed))
    if any(_total(vms, name) > sum(amounts[name] for amounts in free.values()) for name in resources):
        return False
    if len(vms) > _MAX_VMS:
        return True
    vms.sort(key=lambda item: (-sum(item[0].values()), len(item[1]), item[1], sorted(item[0].items())))
    search = _Search(free, vms)
    return search.run() or search.steps > _MAX_STEPS


def _selector_allows(demand: VmDemand, labels: Mapping[str, str]) -> bool:
    return all(labels.get(name) == value for name, value in demand.selector.items())


def _total(vms: Iterable[tuple[dict[str, int], tuple[str, ...]]], resource: str) -> int:
    return sum(counts.get(resource, 0) for counts, _ in vms)


# -- messages


def _shortage(capacity: Capacity, wanted: Sequence[VmDemand], before: Sequence[VmDemand], free: Free) -> FitResult:
    """Return the shortage: a resource by its sum, or otherwise that no node has all devices of a VM."""
    for resource in sorted({name for each in wanted for name in each.counts if is_vm_gpu_resource(name)}):
        requested = sum(each.counts.get(resource, 0) for each in wanted)
        available = sum(amounts[resource] for amounts in free.values())
        waits = sum(each.counts.get(resource, 0) for each in before)
        if requested > available - waits:
            figure = capacity.resources.get(resource, ResourceCapacity(resource))
            remaining = _remaining_text(figure, max(0, available - waits), waits)
            sentence = f"{requested} of {resource} {_are(requested)} requested, {remaining}"
            return FitResult(False, resource, sentence, "aliquot capacity")
    resource = sorted({name for each in wanted for name in each.counts if is_vm_gpu_resource(name)})[0]
    largest = max(wanted, key=lambda each: sum(each.counts.values()))
    need = ", ".join(f"{count} of {name}" for name, count in sorted(largest.counts.items()) if is_vm_gpu_resource(name))
    where = "".join(f"; {node}: {_amounts(amounts)}" for node, amounts in sorted(free.items()) if any(amounts.values()))
    selected = " that its node selector allows" if largest.selector else ""
    sentence = f"no arrangement gives each VM all its devices on one node{selected} ({need}){where}"
    return FitResult(False, resource, sentence, "aliquot capacity")


def _remaining_text(figure: ResourceCapacity, left: int, waits: int) -> str:
    if not figure.nodes:
        return "no node offers it"
    waiting = f", {waits} pending" if waits else ""
    return f"{left} can still be allocated ({figure.total} in the cluster, {figure.allocated} allocated{waiting})"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {name}" for name, count in sorted(amounts.items()) if count)
