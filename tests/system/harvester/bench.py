"""A small environment for user reports: one simulated node with its objects in this process, and admission."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.virtual_machines.harvester.admission.review import judge
from aliquot.kubernetes.virtual_machines.kubevirt.admission import review as machines
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import VmClusterState
from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, ClusterObservation, measure
from support import admissions
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One

JSON = dict[str, Any]
A2, A100, L40S = "0000:08:00.0", "0000:04:00.0", "0000:26:00.0"


def enabled(template: str, folder: Path, pci: str, node: str = "n1") -> One:
    """Build a node whose GPU has its virtual functions enabled through its object."""
    one = One(template, folder, node, pci).settle()
    return one.kubectl("SRIOVGPUDevice", one.name_of(pci), enabled=True)


def carry(one: One, address: str, kind: str) -> One:
    return one.kubectl("VGPUDevice", one.name_of(address), enabled=True, vGPUTypeName=kind)


def give_up(one: One, address: str) -> One:
    return one.kubectl("VGPUDevice", one.name_of(address), enabled=False)


def layout(one: One, pci: str, counts: dict[int, int]) -> One:
    """Enable a MigConfiguration with this request."""
    rows = [{**row, "requested": counts.get(row["id"], 0)} for row in one.mig(pci)["spec"]["profileSpec"]]
    return one.kubectl("MigConfiguration", one.name_of(pci), enabled=True, profileSpec=rows)


def types(one: One, address: str) -> set[str]:
    return set(one.vgpu(address)["status"].get("availableTypes", {}))


def writes(one: One) -> int:
    """Count the calls that have changed the hardware, or tried to."""
    return sum(1 for call in one.node.backend.memory.calls if call.get("write"))


def refused(kind: str, old: JSON | None, new: JSON | None, **given: Any) -> str:
    """Return admission's refusal of a write to one of Harvester's objects, or "" if it is admitted."""
    return judge(admissions.request(kind, old, new), admissions.environment(**given)).message


def offering(name: str, **amounts: int) -> JSON:
    """Build a node with so many devices of each resource (``nvidia.com/`` and the rest)."""
    figures = {key: str(count) for key, count in amounts.items()}
    return {"metadata": {"name": name}, "status": {"capacity": figures, "allocatable": figures}}


def cluster(**given: Any) -> VmClusterState:
    """Build the cluster state that admission reads to judge VMs."""
    found = admissions.environment(**given)
    return VmClusterState(found, frozenset(), counted(**given))


def counted(**given: Any) -> Capacity:
    """Return the remaining count of each resource."""
    found = admissions.environment(**given)
    nodes = tuple(msgspec.convert(given.get("nodes", []), list[Node]))
    parts = (found.vgpus, found.functions, found.claims, found.vms, found.instances)
    return measure(ClusterObservation(nodes, *(tuple(each.values()) for each in parts)))  # type: ignore[arg-type]


def machine_refused(new: JSON, old: JSON | None = None, **given: Any) -> str:
    return machines.validate(admissions.request("virtualmachines", old, new), cluster(**given)).message


def filled(new: JSON, old: JSON | None = None, **given: Any) -> tuple[JSON, JSON]:
    """Return the device lists of a VM as the API server would store them, with the patches that produced them."""
    found = machines.mutate(admissions.request("virtualmachines", old, new), cluster(**given))
    assert found.allowed
    body: JSON = msgspec.json.decode(msgspec.json.encode(new))
    for each in found.patches:
        _patch(body, dict(each))
    return dict(body["spec"]["template"]["spec"]["domain"]["devices"]), {"patches": found.patches}


def _patch(body: JSON, step: JSON) -> None:
    """Apply an operation of RFC 6902 strictly: a path that does not exist is an error."""
    *way, last = step["path"].strip("/").split("/")
    inside: Any = body
    for word in way:
        inside = inside[int(word)] if isinstance(inside, list) else inside[word.replace("~1", "/").replace("~0", "~")]
    last = last.replace("~1", "/").replace("~0", "~")
    if step["op"] == "remove":
        del inside[int(last) if isinstance(inside, list) else last]
    else:
        assert step["op"] == "add" or last in inside
        inside[last] = step["value"]
