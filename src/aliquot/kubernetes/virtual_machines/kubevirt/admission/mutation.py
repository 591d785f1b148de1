"""Completion of a VM: its devices in the right list, ramFB on exactly one, and devices of the same IOMMU group.

Sources: KubeVirt, pkg/virt-launcher (an unset ``display.enabled`` or ``ramFB.enabled`` counts as true; without any
display option the first GPU gets both); harvester/pcidevices 1.8 (vGPUs of vendor-specific VFIO are host devices).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from aliquot.core.planner.vgpu.vm_rules import default_ramfb
from aliquot.kubernetes.client.codec import UNREADABLE
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.kubevirt import DeviceRequest
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import (
    ResourceMeaning,
    VmClusterState,
    resource_meanings,
    vm_device,
)

JSON = dict[str, Any]


class FilledDevices(msgspec.Struct, frozen=True):
    """The device lists to write, with every field of their entries, and warnings for the user."""

    gpus: list[JSON]
    host_devices: list[JSON]
    warnings: tuple[str, ...] = ()


def fill_devices(gpus: list[JSON], host_devices: list[JSON], cluster: VmClusterState) -> FilledDevices:
    """Complete the device lists. Raise msgspec.ValidationError for malformed entries."""
    known = resource_meanings(cluster.snapshot)
    stay, moved, warnings = _move_to_host_devices(gpus, known)
    hosts = [*host_devices, *moved]
    companions = _iommu_companions(hosts, cluster.snapshot)
    notes = [f"{c['name']} shares an IOMMU group with a device of this VM and was added" for c in companions]
    return FilledDevices(_assign_ramfb(stay, known, cluster.snapshot), [*hosts, *companions], (*warnings, *notes))


def _move_to_host_devices(
    gpus: list[JSON], known: dict[str, ResourceMeaning]
) -> tuple[list[JSON], list[JSON], tuple[str, ...]]:
    """Move vGPUs of vendor-specific VFIO to the host devices, which have no display.

    An entry that requests a display explicitly stays in ``gpus``, where newer KubeVirt versions provide it.
    """
    stay, moved, warnings = [], [], []
    for each in gpus:
        frameworks = known.get(each.get("deviceName", ""), ResourceMeaning()).frameworks
        if frameworks != {"vendor-vfio"} or _requests_display(each):
            stay.append(each)
            continue
        moved.append({key: value for key, value in each.items() if key != "virtualGPUOptions"})
        text = (
            f"gpus {each.get('name', '')} is a PCI device on this kernel and was moved to hostDevices, without display"
        )
        warnings.append(f"{text}; to get one, set virtualGPUOptions.display.enabled: true")
    return stay, moved, tuple(warnings)


def _requests_display(entry: JSON) -> bool:
    display = (entry.get("virtualGPUOptions") or {}).get("display")
    return isinstance(display, dict) and display.get("enabled") is True


def _iommu_companions(hosts: list[JSON], snapshot: AdmissionSnapshot) -> list[JSON]:
    """Return the offered devices of the same node and IOMMU group as a function that the VM gets.

    Devices of the group that are not offered are bound together with the GPU and need not be in the VM.
    """
    present = {str(each.get("name", "")) for each in hosts}
    wanted = [
        snapshot.functions[n]
        for n in present
        if n in snapshot.functions and n in snapshot.claims and n not in snapshot.vgpus
    ]
    groups = {(f.status.node_name, f.status.iommu_group) for f in wanted if f.status.iommu_group}
    found = []
    for name in sorted(snapshot.functions):
        status, claim = snapshot.functions[name].status, snapshot.claims.get(name)
        if name in present or claim is None or not claim.status.passthrough_enabled or not status.resource_name:
            continue
        if (status.node_name, status.iommu_group) in groups:
            found.append({"name": name, "deviceName": status.resource_name})
    return found


def _assign_ramfb(gpus: list[JSON], known: dict[str, ResourceMeaning], snapshot: AdmissionSnapshot) -> list[JSON]:
    """Give ramFB to exactly one of several GPUs.

    KubeVirt handles a single GPU itself, and several of which none can have a display.
    """
    if len(gpus) < 2:
        return gpus
    entries = msgspec.convert(gpus, list[DeviceRequest])
    devices = [vm_device(e, known.get(e.device_name, ResourceMeaning()), snapshot) for e in entries]
    # A display without a ramFB option has not requested ramFB: KubeVirt would give it to each of them.
    chosen = default_ramfb(devices)
    if not any(each.ramfb for each in chosen):
        return gpus
    return [_with_ramfb(raw, before.ramfb, after) for raw, before, after in zip(gpus, devices, chosen, strict=True)]


def _with_ramfb(raw: JSON, before: bool | None, after: Any) -> JSON:
    if before is not None:
        return raw
    options = dict(raw.get("virtualGPUOptions") or {})
    display = dict(options.get("display") or {})
    if after.ramfb:
        display |= {"enabled": True}
    elif not after.has_display:
        display.setdefault("enabled", False)
    display["ramFB"] = {"enabled": bool(after.ramfb)}
    return raw | {"virtualGPUOptions": options | {"display": display}}


def patches(base: str, before: tuple[list[JSON], list[JSON]], after: FilledDevices) -> Iterator[JSON]:
    """Yield the JSON Patch operations from the old lists to the new ones.

    They replace whole lists: removing an entry shifts the others, so that only the first patch by position would be
    right.
    """
    pairs = (("gpus", before[0], after.gpus), ("hostDevices", before[1], after.host_devices))
    for field, old, new in pairs:
        if old == new:
            continue
        if new:
            yield {"op": "add", "path": f"{base}/{field}", "value": new}
        else:
            yield {"op": "remove", "path": f"{base}/{field}"}


def annotation_patch(raw: JSON, filled: FilledDevices) -> Iterator[JSON]:
    """Yield the update of a stopped VM's allocation annotation, if it has one: its entries now name its devices."""
    found = (raw.get("metadata") or {}).get("annotations") or {}
    if names.ALLOCATION_ANNOTATION not in found:
        return
    path = "/metadata/annotations/" + names.ALLOCATION_ANNOTATION.replace("~", "~0").replace("/", "~1")
    parts = {"gpus": _by_resource(filled.gpus), "hostdevices": _by_resource(filled.host_devices)}
    wanted = {key: value for key, value in parts.items() if value}
    if not wanted:
        yield {"op": "remove", "path": path}
        return
    try:
        same = msgspec.json.decode(found[names.ALLOCATION_ANNOTATION]) == wanted
    except (*UNREADABLE, TypeError):
        same = False
    if not same:
        yield {"op": "replace", "path": path, "value": msgspec.json.encode(wanted).decode()}


def _by_resource(entries: list[JSON]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in entries:
        if each.get("deviceName"):
            found.setdefault(each["deviceName"], []).append(each.get("name", ""))
    return found
