"""The output of ``aliquot capacity``: a line for each resource, its nodes, and the VMs that have it or wait."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aliquot.kubernetes.virtual_machines.kubevirt.capacity import Capacity, NodeCapacity, ResourceCapacity
    from aliquot.kubernetes.virtual_machines.kubevirt.claim_demand import ClaimClassCapacity, ClaimedVmDevice
    from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand

_CLASS_HEAD = ("DEVICE CLASS", "ALLOCATED", "WAITING")
_STATES = {
    "allocated": ("has", "have"),
    "pending": ("waits for", "wait for"),
    "stopped": ("is stopped, wants", "are stopped, want"),
}
_HEAD = ("RESOURCE", "TOTAL", "USABLE", "ALLOCATED", "WAITING", "ALLOCATABLE")


def page(
    found: Capacity, classes: Iterable[ClaimClassCapacity], devices: Iterable[ClaimedVmDevice], name: str = ""
) -> str:
    """Return the whole output, of only one resource or device class if it is named."""
    claims = claims_text(classes, devices, name)
    offered = any(name in ("", resource) for resource in found.resources)
    return "\n".join(each for each in (text(found, name) if offered or not claims else "", claims) if each)


def text(found: Capacity, resource: str = "") -> str:
    """Return the part about resources; one sentence if the cluster has no resource for VMs."""
    capacities = [each for each in found.resources.values() if resource in ("", each.resource)]
    if not capacities:
        return "no GPU or vGPU for virtual machines: no node of this cluster offers one, and no VM requests one"
    rows: list[Sequence[str]] = [_HEAD]
    for capacity in capacities:
        rows.append(_capacity_row(capacity))
        rows += [_place(each) for each in capacity.nodes]
    lines = _table(rows)
    for title, demands in (("has", found.running), ("waits for", found.waiting), ("is stopped, wants", found.stopped)):
        lines += [_vm(each, title, resource) for each in demands if _concerned(each, found, resource)]
    return "\n".join(lines)


def vms(found: Capacity, resource: str = "") -> dict[str, Any]:
    """Return the devices of each VM as plain data, in three lists of VMs."""
    return {
        name: [
            {"namespace": each.namespace, "name": each.name, "node": each.node, "devices": dict(each.counts)}
            for each in demands
            if _concerned(each, found, resource)
        ]
        for name, demands in (("running", found.running), ("waiting", found.waiting), ("stopped", found.stopped))
    }


def claims_text(classes: Iterable[ClaimClassCapacity], devices: Iterable[ClaimedVmDevice], device_class: str) -> str:
    """Return what VMs have and want through ResourceClaims; empty if there is nothing of this class, or of any."""
    rows: list[Sequence[str]] = [_CLASS_HEAD]
    for each in classes:
        if device_class in ("", each.device_class):
            rows.append((each.device_class, str(each.allocated), str(each.pending)))
            rows += [(f"  {node}", str(count), "") for node, count in each.nodes.items()]
    lines = [_claimed(each) for each in devices if device_class in ("", each.device_class)]
    return "\n".join([*(_table(rows) if len(rows) > 1 else ()), *lines])


def claimed(devices: Iterable[ClaimedVmDevice], device_class: str) -> dict[str, Any]:
    """Return the devices of claims as plain data."""
    return {
        "claimed": [
            {
                "namespace": each.namespace,
                "vms": list(each.vms),
                "node": each.node,
                "deviceClass": each.device_class,
                "claim": each.claim,
                "request": each.request,
                "state": each.state,
            }
            for each in devices
            if device_class in ("", each.device_class)
        ]
    }


def _claimed(device: ClaimedVmDevice) -> str:
    who = " and ".join(f"{device.namespace}/{name}" for name in device.vms)
    where = f" on {device.node}" if device.node else ""
    verb = _STATES[device.state][len(device.vms) > 1]
    return f"{who} {verb} 1 of {device.device_class}{where} (claim {device.claim})"


def _concerned(demand: VmDemand, found: Capacity, resource: str) -> bool:
    return any(name == resource or (not resource and name in found.resources) for name in demand.counts)


def _capacity_row(capacity: ResourceCapacity) -> Sequence[str]:
    amounts = (capacity.total, capacity.usable, capacity.allocated, capacity.pending, capacity.allocatable)
    return (capacity.resource, *map(str, amounts))


def _place(place: NodeCapacity) -> Sequence[str]:
    not_ready = "" if place.ready else " (takes no machines)"
    late = f" ({place.configured} configured)" if place.configured > place.total else ""
    free = str(place.free) if place.ready else "0"
    return (f"  {place.node}{not_ready}{late}", str(place.total), str(place.usable), str(place.allocated), "", free)


def _vm(demand: VmDemand, title: str, resource: str) -> str:
    what = ", ".join(f"{count} of {name}" for name, count in demand.counts.items() if resource in ("", name))
    where = f" on {demand.node}" if demand.node else ""
    whose = f" (cluster {demand.cluster})" if demand.cluster else ""
    return f"{demand.namespace}/{demand.name}{whose} {title} {what}{where}"


def _table(rows: Iterable[Sequence[str]]) -> list[str]:
    """Align the first column to the left, numbers to the right."""
    all_rows = list(rows)
    widths = [max(len(row[n]) for row in all_rows) for n in range(len(all_rows[0]))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in all_rows
    ]
