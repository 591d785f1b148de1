"""Devices for a machine of KubeVirt, and away from it: the lists as they should be written, with the rules that the
webhook has. Pure.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.dashboard.change_requests import Attach, Detach
from aliquot.dashboard.cluster.harvester_rows import plain
from aliquot.dashboard.cluster.vms import RESTART
from aliquot.dashboard.view_models import Act, Device, MachineRow, Obstacle
from aliquot.kubernetes.client.codec import decode
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine
from aliquot.kubernetes.virtual_machines.kubevirt.admission import validate as check
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import Cluster
from aliquot.kubernetes.virtual_machines.kubevirt.admission.mutate import Filled, fill
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import of_machine

JSON = dict[str, Any]
FIRST_ALONE = (
    "only one device of a machine can have the boot display (ramFB): {0} has it, the others are written without"
)


class Lists(msgspec.Struct, frozen=True):
    """What a machine's device lists become. ``version`` is the machine's as it was read."""

    namespace: str
    name: str
    version: str
    gpus: list[JSON]
    host_devices: list[JSON]
    acts: tuple[Act, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    warnings: tuple[str, ...] = ()

    def body(self) -> JSON:
        """As a merge patch: lists are replaced whole."""
        devices = {"gpus": self.gpus or None, "hostDevices": self.host_devices or None}
        spec = {"template": {"spec": {"domain": {"devices": devices}}}}
        return {"metadata": {"resourceVersion": self.version}, "spec": spec}


def attach(ask: Attach | Detach, raw: JSON, row: MachineRow | None, cluster: Cluster) -> Lists:
    """``raw`` is the machine as the API server has it, ``row`` as the page shows it."""
    gpus, hosts = lists(raw)
    free = {device.id: device for device in (row.free if row is not None else ())}
    obstacles: list[Obstacle] = []
    acts: list[Act] = []
    before = len(gpus) + len(hosts)
    if isinstance(ask, Attach):
        chosen = [_chosen(ask, each, free, obstacles) for each in dict.fromkeys(ask.devices)]
        for device in filter(None, chosen):
            whole = not _is_vgpu(device, cluster)
            (hosts if whole else gpus).append({"name": device.id, "deviceName": device.resource})
            acts.append(Act(device.node, device.parent, "attach", "", f"{device.type} ({device.id})", "asked for"))
    else:
        for name in dict.fromkeys(ask.devices):
            if not any(each.get("name") == name for each in (*gpus, *hosts)):
                text = f"{ask.machine} has no device {name} (any more)"
                obstacles.append(Obstacle("NO_DEVICE", text, ask.node))
            acts.append(Act(ask.node, "", "detach", "", name, "asked for"))
        gpus = [each for each in gpus if each.get("name") not in ask.devices]
        hosts = [each for each in hosts if each.get("name") not in ask.devices]
    try:
        filled = fill(gpus, hosts, cluster)
    except (msgspec.ValidationError, AttributeError, TypeError):
        filled = Filled(gpus, hosts, ("its devices cannot be read as KubeVirt's: nothing was filled in",))
    if isinstance(ask, Attach):
        obstacles += _complaints(ask, raw, filled, cluster)
    meta = raw.get("metadata", {})
    return Lists(
        namespace=ask.namespace,
        name=ask.machine,
        version=str(meta.get("resourceVersion", "")),
        gpus=filled.gpus,
        host_devices=filled.host_devices,
        acts=() if obstacles else tuple(acts),
        obstacles=tuple(obstacles),
        warnings=(*_said(gpus, filled, before, row), *filled.warnings),
    )


def lists(raw: JSON) -> tuple[list[JSON], list[JSON]]:
    """The two device lists of a machine; empty where it has none."""
    found: Any = raw
    for key in ("spec", "template", "spec", "domain", "devices"):
        found = found.get(key) if isinstance(found, dict) else None
    devices: JSON = found if isinstance(found, dict) else {}
    return list(devices.get("gpus") or ()), list(devices.get("hostDevices") or ())


def _chosen(ask: Attach, name: str, free: dict[str, Device], obstacles: list[Obstacle]) -> Device | None:
    device = free.get(name)
    if device is None:
        text = f"{name} is not free for {ask.machine}: only devices of its own node that no machine has can be attached"
        obstacles.append(Obstacle("NOT_FREE", text, ask.node, next_step="kubectl get vgpudevices"))
    elif ask.node and device.node != ask.node:
        text = f"{name} is on node {device.node}, not on {ask.node}: all devices of a machine are on one node"
        obstacles.append(Obstacle("ONE_NODE", text, ask.node))
        return None
    return device


def _is_vgpu(device: Device, cluster: Cluster) -> bool:
    return device.id in cluster.world.vgpus


def _complaints(ask: Attach, raw: JSON, filled: Filled, cluster: Cluster) -> list[Obstacle]:
    """What admission would say to the machine as it would be."""
    domain = {"devices": {"gpus": filled.gpus, "hostDevices": filled.host_devices}}
    spec = {**raw.get("spec", {}), "template": {"spec": {"domain": domain}}}
    after = decode(msgspec.json.encode({"metadata": raw.get("metadata", {}), "spec": spec}), VirtualMachine)
    said = [(text, "DEVICES") for text in check.devices(after.devices, cluster)]
    if after.wanted and not said:
        room = check.capacity(of_machine(after), cluster)
        said += [] if room.fits else [(room.sentence, "CAPACITY")]
    return [Obstacle(rule, plain(text), ask.node, next_step=text.partition(" | next: ")[2]) for text, rule in said]


def _said(gpus: list[JSON], filled: Filled, before: int, row: MachineRow | None) -> list[str]:
    """Which device has the boot display, where that was decided for the user; and when a running machine sees it."""
    told = []
    having = [each for each in filled.gpus if _ramfb(each)]
    if len(filled.gpus) > 1 and filled.gpus != gpus and having:
        told.append(FIRST_ALONE.format(having[0].get("name", "")))
    if row is not None and row.running:
        told.append(RESTART)
    return told


def _ramfb(entry: JSON) -> bool:
    display = (entry.get("virtualGPUOptions") or {}).get("display") or {}
    return bool((display.get("ramFB") or {}).get("enabled"))
