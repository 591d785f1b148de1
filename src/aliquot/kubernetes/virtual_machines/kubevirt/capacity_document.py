"""Capacity documents for programs: Aliquot's own, and the form in which Harvester answers Rancher. Pure.

Both contain only counts, no names of VMs: pollers need no permissions.

Harvester's form is a map of resource to remaining amount over all nodes, cpu and memory included. It is behind the link
``deviceCapacity`` of the only cluster ``local``. Sources: harvester/harvester, pkg/api/cluster; rancher/dashboard,
pkg/harvester-manager (the links and amounts that its form reads).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import quantity
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, NodeCapacity, ResourceCapacity
from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import ClaimClassCapacity
from aliquot.kubernetes.virtual_machines.kubevirt.fit import FitResult

JSON = dict[str, Any]
API_VERSION = "aliquot/v1"
CLUSTER = "local"


def document(capacity: Capacity, resource: str = "", classes: Iterable[ClaimClassCapacity] | None = None) -> JSON:
    """Return the document of kind ``Capacity``, optionally of only one resource or device class; its lists are empty
    for an unknown one.

    ``classes`` are the devices of claims. If they are None, which means unknown, the document has no list of them.
    """
    entries = [each for each in capacity.resources.values() if resource in ("", each.resource)]
    found: JSON = {"apiVersion": API_VERSION, "kind": "Capacity"}
    found["resources"] = [_resource_entry(each) for each in entries]
    if classes is not None:
        found["deviceClasses"] = [_class_entry(each) for each in classes if resource in ("", each.device_class)]
    return found


def fit_document(found: FitResult) -> JSON:
    """Return the document of kind ``Fit``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Fit",
        "fits": found.fits,
        "resource": found.resource,
        "message": found.sentence,
    }


def remaining_by_resource(nodes: Iterable[Node], capacity: Capacity) -> dict[str, str]:
    """Return Harvester's ``deviceCapacity``: the remaining amount of every resource over all nodes.

    GPUs count as in Aliquot's own document. For other resources, the requests of running and waiting VMs are
    subtracted, down to zero.
    """
    amounts: dict[str, list[str]] = {}
    for node in nodes:
        for resource, text in node.status.allocatable.items():
            amounts.setdefault(resource, []).append(text)
    taken: Counter[str] = Counter()
    for each in (*capacity.running, *capacity.waiting):
        taken.update(each.counts)
    found = {resource: _remaining(texts, taken[resource]) for resource, texts in amounts.items()}
    found |= {
        resource: str(resource_capacity.allocatable) for resource, resource_capacity in capacity.resources.items()
    }
    return dict(sorted(found.items()))


def cluster(path: str) -> JSON:
    """Return Harvester's only cluster, served at ``path``. Rancher follows its link."""
    links = {"self": path, "deviceCapacity": f"{path}?link=deviceCapacity"}
    return {"id": CLUSTER, "type": "cluster", "links": links, "name": CLUSTER}


def clusters(path: str) -> JSON:
    """Return the list that contains this cluster."""
    rows = [cluster(f"{path}/{CLUSTER}")]
    return {"type": "collection", "resourceType": "cluster", "links": {"self": path}, "count": 1, "data": rows}


def _remaining(texts: list[str], taken: int) -> str:
    if not taken:
        return str(quantity.total(texts))
    return str(quantity.total([*texts, str(-min(taken, int(quantity.total(texts).value)))]))


def _resource_entry(resource: ResourceCapacity) -> JSON:
    return {
        "resource": resource.resource,
        "total": resource.total,
        "usable": resource.usable,
        "allocated": resource.allocated,
        "pending": resource.pending,
        "stopped": resource.stopped,
        "allocatable": resource.allocatable,
        "setAside": resource.set_aside,
        "nodes": [_node_entry(each) for each in resource.nodes],
    }


def _class_entry(each: ClaimClassCapacity) -> JSON:
    return {
        "deviceClass": each.device_class,
        "allocated": each.allocated,
        "pending": each.pending,
        "stopped": each.stopped,
        "nodes": [{"node": node, "allocated": count} for node, count in each.nodes.items()],
    }


def _node_entry(node: NodeCapacity) -> JSON:
    return {
        "node": node.node,
        "total": node.total,
        "usable": node.usable,
        "configured": node.configured,
        "allocated": node.allocated,
        "free": node.free,
        "ready": node.ready,
    }
