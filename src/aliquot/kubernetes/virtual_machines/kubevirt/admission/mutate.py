"""What is filled in when a machine is written: where its devices belong, ramFB on exactly one, IOMMU companions.

Sources: KubeVirt, pkg/virt-launcher (an unset ``display.enabled`` or ``ramFB.enabled`` counts as yes; without any
display option the first GPU gets both); harvester/pcidevices 1.8 (vGPUs of vendor VFIO are host devices).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from aliquot.core.planner.vgpu.vm_rules import default_ramfb
from aliquot.kubernetes.client.codec import UNREADABLE
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.kubevirt import DeviceRequest
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import World
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import (
    VENDOR_VFIO,
    Cluster,
    Meaning,
    meanings,
    vm_device,
)

JSON = dict[str, Any]


class Filled(msgspec.Struct, frozen=True):
    """The device lists as they should be written, every field of theirs kept, and what the user should know."""

    gpus: list[JSON]
    host_devices: list[JSON]
    warnings: tuple[str, ...] = ()


def fill(gpus: list[JSON], host_devices: list[JSON], cluster: Cluster) -> Filled:
    """Raises msgspec.ValidationError for entries that are none."""
    known = meanings(cluster.world)
    stay, moved, warnings = _moved(gpus, known)
    hosts = [*host_devices, *moved]
    companions = _companions(hosts, cluster.world)
    told = [f"{c['name']} shares an IOMMU group with a device of this VM and comes along" for c in companions]
    return Filled(_one_ramfb(stay, known, cluster.world), [*hosts, *companions], (*warnings, *told))


def _moved(gpus: list[JSON], known: dict[str, Meaning]) -> tuple[list[JSON], list[JSON], tuple[str, ...]]:
    """vGPUs of vendor VFIO become host devices, which have no display; who asks for one by name keeps it in ``gpus``,
    where newer KubeVirts can give it.
    """
    stay, moved, warnings = [], [], []
    for each in gpus:
        worlds = known.get(each.get("deviceName", ""), Meaning()).worlds
        if worlds != {VENDOR_VFIO} or _asks_for_display(each):
            stay.append(each)
            continue
        moved.append({key: value for key, value in each.items() if key != "virtualGPUOptions"})
        text = (
            f"gpus {each.get('name', '')} is a PCI device on this kernel and was moved to hostDevices, without display"
        )
        warnings.append(f"{text}; for one, write virtualGPUOptions.display.enabled: true")
    return stay, moved, tuple(warnings)


def _asks_for_display(entry: JSON) -> bool:
    display = (entry.get("virtualGPUOptions") or {}).get("display")
    return isinstance(display, dict) and display.get("enabled") is True


def _companions(hosts: list[JSON], world: World) -> list[JSON]:
    """Devices of the same node and IOMMU group as one that is handed out whole, which are offered too. What is not
    offered is held back with the GPU and need not be in the machine.
    """
    there = {str(each.get("name", "")) for each in hosts}
    wanted = [world.functions[n] for n in there if n in world.functions and n in world.claims and n not in world.vgpus]
    groups = {(f.status.node_name, f.status.iommu_group) for f in wanted if f.status.iommu_group}
    found = []
    for name in sorted(world.functions):
        status, claim = world.functions[name].status, world.claims.get(name)
        if name in there or claim is None or not claim.status.passthrough_enabled or not status.resource_name:
            continue
        if (status.node_name, status.iommu_group) in groups:
            found.append({"name": name, "deviceName": status.resource_name})
    return found


def _one_ramfb(gpus: list[JSON], known: dict[str, Meaning], world: World) -> list[JSON]:
    """Of several GPUs exactly one has ramFB. A single one is KubeVirt's business, and so are several of which none can
    have a display.
    """
    if len(gpus) < 2:
        return gpus
    entries = msgspec.convert(gpus, list[DeviceRequest])
    devices = [vm_device(e, known.get(e.device_name, Meaning()), world) for e in entries]
    # A display without a word on ramFB has not asked for it: KubeVirt would give it to every one of them.
    chosen = default_ramfb(devices)
    if not any(each.ramfb for each in chosen):
        return gpus
    return [_with(raw, before.ramfb, after) for raw, before, after in zip(gpus, devices, chosen, strict=True)]


def _with(raw: JSON, before: bool | None, after: Any) -> JSON:
    if before is not None:
        return raw
    options = dict(raw.get("virtualGPUOptions") or {})
    display = dict(options.get("display") or {})
    if after.ramfb:
        display |= {"enabled": True}
    elif not after.can_show:
        display.setdefault("enabled", False)
    display["ramFB"] = {"enabled": bool(after.ramfb)}
    return raw | {"virtualGPUOptions": options | {"display": display}}


def patches(base: str, before: tuple[list[JSON], list[JSON]], after: Filled) -> Iterator[JSON]:
    """JSON Patch from the lists that were to those that should be. Whole lists: what is taken out of one shifts the
    rest, so that a patch by position is right for the first one only.
    """
    pairs = (("gpus", before[0], after.gpus), ("hostDevices", before[1], after.host_devices))
    for field, old, new in pairs:
        if old == new:
            continue
        if new:
            yield {"op": "add", "path": f"{base}/{field}", "value": new}
        else:
            yield {"op": "remove", "path": f"{base}/{field}"}


def annotation(raw: JSON, filled: Filled) -> Iterator[JSON]:
    """For a stopped machine that has an allocation annotation: what it names now is what it holds."""
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
