"""Capacity as programs read it: our own document, and the shape that Harvester answers Rancher with. Pure.

Both hold figures alone, no names of machines: who polls is not asked for rights.
Sources of Harvester's shape: harvester/harvester, pkg/api/cluster (a map of resource to what is left of it over all
nodes, cpu and memory included, behind the link ``deviceCapacity`` of the one cluster ``local``); rancher/dashboard,
pkg/harvester-manager (which links and figures its form reads).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.gpu import quantity
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, Figure, Place
from aliquot.kubernetes.virtual_machines.kubevirt.fit import Fit

JSON = dict[str, Any]
API_VERSION = "aliquot/v1"
CLUSTER = "local"


def document(capacity: Capacity, resource: str = "") -> JSON:
    """``kind: Capacity``. With ``resource`` only that one; its list is empty where nobody knows the resource."""
    figures = [each for each in capacity.figures.values() if resource in ("", each.resource)]
    return {"apiVersion": API_VERSION, "kind": "Capacity", "resources": [_figure(each) for each in figures]}


def answer(found: Fit) -> JSON:
    """``kind: Fit``."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Fit",
        "fits": found.fits,
        "resource": found.resource,
        "message": found.sentence,
    }


def left(nodes: Iterable[Node], capacity: Capacity) -> dict[str, str]:
    """Harvester's ``deviceCapacity``: what is left of every resource of all nodes. GPUs count as in our own document;
    of other devices, what machines have or wait for is taken off, and never below zero.
    """
    amounts: dict[str, list[str]] = {}
    for node in nodes:
        for resource, text in node.status.allocatable.items():
            amounts.setdefault(resource, []).append(text)
    taken: Counter[str] = Counter()
    for each in (*capacity.running, *capacity.waiting):
        taken.update(each.counts)
    found = {resource: _rest(texts, taken[resource]) for resource, texts in amounts.items()}
    found |= {resource: str(figure.allocatable) for resource, figure in capacity.figures.items()}
    return dict(sorted(found.items()))


def cluster(path: str) -> JSON:
    """Harvester's one cluster, found at ``path``; Rancher follows its link."""
    links = {"self": path, "deviceCapacity": f"{path}?link=deviceCapacity"}
    return {"id": CLUSTER, "type": "cluster", "links": links, "name": CLUSTER}


def clusters(path: str) -> JSON:
    """The list of that one."""
    rows = [cluster(f"{path}/{CLUSTER}")]
    return {"type": "collection", "resourceType": "cluster", "links": {"self": path}, "count": 1, "data": rows}


def _rest(texts: list[str], taken: int) -> str:
    if not taken:
        return str(quantity.total(texts))
    return str(quantity.total([*texts, str(-min(taken, int(quantity.total(texts).value)))]))


def _figure(figure: Figure) -> JSON:
    return {
        "resource": figure.resource,
        "total": figure.total,
        "usable": figure.usable,
        "allocated": figure.allocated,
        "pending": figure.pending,
        "stopped": figure.stopped,
        "allocatable": figure.allocatable,
        "setAside": figure.set_aside,
        "nodes": [_place(each) for each in figure.places],
    }


def _place(place: Place) -> JSON:
    return {
        "node": place.node,
        "total": place.total,
        "usable": place.usable,
        "configured": place.configured,
        "allocated": place.allocated,
        "free": place.free,
        "ready": place.ready,
    }
