"""Attaching and detaching devices of KubeVirt VMs: the new device lists, checked by the webhook's rules. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.dashboard.change_requests import AttachDevices, DetachDevices
from aliquot.dashboard.cluster.vms import RESTART
from aliquot.dashboard.view_models import ActionLine, Obstacle, VmDeviceRow, VmRow
from aliquot.errors import Message
from aliquot.kubernetes.client.codec import decode
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine
from aliquot.kubernetes.virtual_machines.kubevirt.admission import validation as check
from aliquot.kubernetes.virtual_machines.kubevirt.admission.device_meanings import VmClusterState
from aliquot.kubernetes.virtual_machines.kubevirt.admission.mutation import FilledDevices, fill_devices
from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import vm_demand

JSON = dict[str, Any]
ONE_BOOT_DISPLAY = "only one device of a VM can have the boot display (ramFB): it is set for {0} and not for the others"


class DeviceLists(msgspec.Struct, frozen=True):
    """The new device lists of a VM. ``version`` is the resource version that was read."""

    namespace: str
    name: str
    version: str
    gpus: list[JSON]
    host_devices: list[JSON]
    actions: tuple[ActionLine, ...] = ()
    obstacles: tuple[Obstacle, ...] = ()
    warnings: tuple[str, ...] = ()
    running: bool = False
    """Whether the VM runs with its former devices until it is stopped and started again."""

    def body(self) -> JSON:
        """Build the merge patch. It replaces whole lists."""
        devices = {"gpus": self.gpus or None, "hostDevices": self.host_devices or None}
        spec = {"template": {"spec": {"domain": {"devices": devices}}}}
        return {"metadata": {"resourceVersion": self.version}, "spec": spec}


def attach(
    request: AttachDevices | DetachDevices, raw: JSON, row: VmRow | None, cluster: VmClusterState
) -> DeviceLists:
    """Plan a change of a VM. ``raw`` is its API object, and ``row`` its row on the page."""
    gpus, hosts = lists(raw)
    before = len(gpus) + len(hosts)
    if isinstance(request, AttachDevices):
        obstacles, actions = _add(request, gpus, hosts, row, cluster)
    else:
        obstacles, actions = _remove(request, gpus, hosts)
    try:
        filled = fill_devices(gpus, hosts, cluster)
    except (msgspec.ValidationError, AttributeError, TypeError):
        filled = FilledDevices(
            gpus, hosts, ("the VM's device entries are not valid for KubeVirt: no defaults were added",)
        )
    if isinstance(request, AttachDevices):
        obstacles += _complaints(request, raw, filled, cluster)
    meta = raw.get("metadata", {})
    return DeviceLists(
        namespace=request.namespace,
        name=request.vm,
        version=str(meta.get("resourceVersion", "")),
        gpus=filled.gpus,
        host_devices=filled.host_devices,
        actions=() if obstacles else tuple(actions),
        obstacles=tuple(obstacles),
        warnings=(*_warnings(gpus, filled, before, row), *filled.warnings),
        running=row is not None and row.running,
    )


def _add(
    request: AttachDevices, gpus: list[JSON], hosts: list[JSON], row: VmRow | None, cluster: VmClusterState
) -> tuple[list[Obstacle], list[ActionLine]]:
    obstacles: list[Obstacle] = []
    actions: list[ActionLine] = []
    free = {device.id: device for device in (row.free if row is not None else ())}
    chosen = [_chosen(request, each, free, obstacles) for each in dict.fromkeys(request.devices)]
    for device in filter(None, chosen):
        of_kind = gpus if _is_vgpu(device, cluster) else hosts
        of_kind.append({"name": device.id, "deviceName": device.resource})
        what = f"{device.type} ({device.id})"
        actions.append(ActionLine(device.node, device.parent, "attach", "", what, "requested"))
    return obstacles, actions


def _remove(request: DetachDevices, gpus: list[JSON], hosts: list[JSON]) -> tuple[list[Obstacle], list[ActionLine]]:
    requested = list(dict.fromkeys(request.devices))
    present = [each.get("name") for each in (*gpus, *hosts)]
    for devices in (gpus, hosts):
        devices[:] = [each for each in devices if each.get("name") not in requested]
    obstacles = [
        Obstacle("NO_DEVICE", f"{request.vm} has no device {name}", request.node)
        for name in requested
        if name not in present
    ]
    return obstacles, [ActionLine(request.node, "", "detach", "", name, "requested") for name in requested]


def lists(raw: JSON) -> tuple[list[JSON], list[JSON]]:
    """Return the two device lists of a VM, empty if it has none."""
    found: Any = raw
    for key in ("spec", "template", "spec", "domain", "devices"):
        found = found.get(key) if isinstance(found, dict) else None
    devices: JSON = found if isinstance(found, dict) else {}
    return list(devices.get("gpus") or ()), list(devices.get("hostDevices") or ())


def _chosen(
    request: AttachDevices, name: str, free: dict[str, VmDeviceRow], obstacles: list[Obstacle]
) -> VmDeviceRow | None:
    device = free.get(name)
    if device is None:
        text = f"{name} is not available for {request.vm}: only unused devices of the VM's node can be attached"
        obstacles.append(Obstacle("NOT_FREE", text, request.node, next_step="kubectl get vgpudevices"))
    elif request.node and device.node != request.node:
        text = f"{name} is on node {device.node}, not on {request.node}: all devices of a VM must be on one node"
        obstacles.append(Obstacle("ONE_NODE", text, request.node))
        return None
    return device


def _is_vgpu(device: VmDeviceRow, cluster: VmClusterState) -> bool:
    return device.id in cluster.snapshot.vgpus


def _complaints(request: AttachDevices, raw: JSON, filled: FilledDevices, cluster: VmClusterState) -> list[Obstacle]:
    """Check the changed VM with the admission rules."""
    domain = {"devices": {"gpus": filled.gpus, "hostDevices": filled.host_devices}}
    spec = {**raw.get("spec", {}), "template": {"spec": {"domain": domain}}}
    after = decode(msgspec.json.encode({"metadata": raw.get("metadata", {}), "spec": spec}), VirtualMachine)
    complaints = [(each, "DEVICES") for each in check.device_errors(after.devices, cluster)]
    if after.should_run and not complaints:
        fit = check.check_fit(vm_demand(after), cluster)
        complaints += [] if fit.fits else [(Message(fit.sentence), "CAPACITY")]
    return [Obstacle(rule, each.sentence, request.node, next_step=each.next_step) for each, rule in complaints]


def _warnings(gpus: list[JSON], filled: FilledDevices, before: int, row: VmRow | None) -> list[str]:
    """Return notices: the device chosen for the boot display, and that a running VM must be restarted."""
    warnings = []
    with_display = [each for each in filled.gpus if _ramfb(each)]
    if len(filled.gpus) > 1 and filled.gpus != gpus and with_display:
        warnings.append(ONE_BOOT_DISPLAY.format(with_display[0].get("name", "")))
    if row is not None and row.running:
        warnings.append(RESTART)
    return warnings


def _ramfb(entry: JSON) -> bool:
    display = (entry.get("virtualGPUOptions") or {}).get("display") or {}
    return bool((display.get("ramFB") or {}).get("enabled"))
