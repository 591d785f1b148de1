"""Requests of an API server to admission webhooks, and small snapshots of a cluster to judge them by."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from aliquot.kubernetes.client import admission_review as review
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.kinds import harvester as kinds
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester_peripherals import SRIOVNetworkDevice, USBDevice, USBDeviceClaim
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.kinds.vgpu_pools import GROUP as POOLS
from aliquot.kubernetes.kinds.vm_claims import VmClaim
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot

JSON = dict[str, Any]
NODE, PF = "n1", "0000:08:00.0"
GPU = "n1-000008000"
KINDS: dict[str, type[Any]] = {
    "gpus": kinds.SRIOVGPUDevice,
    "vgpus": kinds.VGPUDevice,
    "migs": kinds.MigConfiguration,
    "functions": kinds.PCIDevice,
    "claims": kinds.PCIDeviceClaim,
    "usb_claims": USBDeviceClaim,
    "usb": USBDevice,
    "network": SRIOVNetworkDevice,
    "nodes": Node,
}
NAMESPACED: dict[str, type[Any]] = {
    "vms": VirtualMachine,
    "instances": VirtualMachineInstance,
    "resource_claims": VmClaim,
}


def request(
    resource: str, old: JSON | None, new: JSON | None, *, user: str = "alice", dry_run: bool = False, sub: str = ""
) -> review.AdmissionRequest:
    """Build the request as an API server would send it."""
    some = new or old or {}
    group = "kubevirt.io" if resource.startswith("virtualmachine") else kinds.GROUP
    group = POOLS if resource == "vgpupools" else group
    operation = "CREATE" if old is None else "DELETE" if new is None else "UPDATE"
    body = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u-1",
            "kind": {"group": group, "version": "v1", "kind": "Any"},
            "resource": {"group": group, "version": "v1", "resource": resource},
            "subResource": sub,
            "name": some["metadata"]["name"],
            "namespace": some["metadata"].get("namespace", ""),
            "operation": operation,
            "userInfo": {"username": user, "groups": ["system:authenticated"]},
            "object": new,
            "oldObject": old,
            "dryRun": dry_run,
            "options": None,
        },
    }
    return review.decode_review(json.dumps(body).encode())


def environment(**given: list[JSON]) -> AdmissionSnapshot:
    """Build a snapshot from objects as on the wire, by the fields of AdmissionSnapshot. Node n1 exists unless nodes are
    given.
    """
    found: JSON = {"nodes": {NODE: msgspec.convert({"metadata": {"name": NODE}}, Node)}}
    for field, rows in given.items():
        if field in NAMESPACED:
            found[field] = {o.key: o for o in (msgspec.convert(row, NAMESPACED[field]) for row in rows)}
        elif field != "accounts":
            found[field] = {o.name: o for o in (msgspec.convert(row, KINDS[field]) for row in rows)}
    return AdmissionSnapshot(**found, accounts=frozenset(given.get("accounts", [])))  # type: ignore[arg-type]


def merged(one: JSON, **changes: Any) -> JSON:
    """Return a copy with parts of spec, status or metadata replaced."""
    copy: JSON = json.loads(json.dumps(one))
    for part, fields in changes.items():
        copy.setdefault(part, {}).update(fields)
    return copy


def gpu(enabled: bool = True, *vgpus: str, address: str = PF, node: str = NODE) -> JSON:
    spec = {"address": address, "nodeName": node, "enabled": enabled}
    meta = {"name": names.object_name(node, address), "labels": {names.NODE_LABEL: node}}
    return {"metadata": meta, "spec": spec, "status": {"vGPUDevices": vgpus}}


def vgpu(address: str, type_name: str = "", enabled: bool = False, *, node: str = NODE, **status: Any) -> JSON:
    """Build a VGPUDevice. Its ``status`` takes ``types={name: id}``, ``uuid`` and ``made=True``."""
    made = status.get("made", enabled)
    reported = {
        "availableTypes": status.get("types", {}),
        "configureVGPUTypeName": type_name if made else "",
        "uuid": status.get("uuid", "5b5b7326-6bb8-48cb-a321-8fa58ccbb38c") if made else "",
        "vGPUStatus": names.CONFIGURED if made else "",
    }
    spec = {"address": address, "nodeName": node, "enabled": enabled, "vGPUTypeName": type_name}
    labels = {names.NODE_LABEL: node, names.PARENT_LABEL: names.object_name(node, PF)}
    meta = {"name": names.object_name(node, address), "labels": labels}
    return {"metadata": meta, "spec": spec | {"parentGPUDeviceAddress": PF}, "status": reported}


def function(address: str = PF, device: str = "25b6", *, node: str = NODE, **more: Any) -> JSON:
    status = {"address": address, "vendorId": "10de", "deviceId": device, "classId": "0302", "nodeName": node}
    status |= {"iommuGroup": more.get("group", "38"), "resourceName": more.get("resource", "")}
    meta = {"name": names.object_name(node, address), "labels": more.get("labels", {})}
    return {"metadata": meta, "spec": {}, "status": status}


def claim(address: str = PF, *, node: str = NODE, passthrough: bool = True, **meta: Any) -> JSON:
    spec = {"address": address, "nodeName": node, "userName": "alice"}
    name = {"name": names.object_name(node, address)}
    return {"metadata": name | meta, "spec": spec, "status": {"passthroughEnabled": passthrough}}


def mig(requested: dict[int, int], *, enabled: bool, state: str = "", have: dict[int, list[str]] | None = None) -> JSON:
    """Build the MigConfiguration of an A100 40 GB. ``have`` are instance ids by profile, without any other fields."""
    rows = {19: ("1g.5gb", 7), 20: ("1g.5gb+me", 1), 15: ("1g.10gb", 4), 14: ("2g.10gb", 3), 9: ("3g.20gb", 2)}
    rows |= {5: ("4g.20gb", 1), 0: ("7g.40gb", 1)}
    have = have or {}
    profiles = [{"id": i, "name": f"MIG {n}", "requested": requested.get(i, 0)} for i, (n, _) in rows.items()]
    status = [
        {"id": i, "name": f"MIG {n}", "total": total, "available": 0 if have else total, "vGPUID": have.get(i)}
        for i, (n, total) in rows.items()
    ]
    spec = {"enabled": enabled, "gpuAddress": PF, "nodeName": NODE, "profileSpec": profiles}
    messages = [{k: v for k, v in row.items() if v is not None} for row in status]
    return {"metadata": {"name": GPU}, "spec": spec, "status": {"profileStatus": messages, "status": state}}


def machine(name: str, *devices: JSON, field: str = "gpus", strategy: str = "Always", **meta: Any) -> JSON:
    """Build a VirtualMachine with these entries."""
    inside = {field: list(devices)} if devices else {}
    template = {"spec": {"domain": {"devices": inside}}}
    spec = {"runStrategy": strategy, "template": template}
    return {"metadata": {"name": name, "namespace": "default"} | meta, "spec": spec}


def instance(name: str, node: str, *devices: JSON, field: str = "gpus", phase: str = "Running") -> JSON:
    spec = {"domain": {"devices": {field: list(devices)}}}
    status = {"phase": phase, "nodeName": node}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": spec, "status": status}


def entry(name: str, resource: str, **options: Any) -> JSON:
    """Build an entry of a device list. ``options`` takes ``display={...}``."""
    more = {"virtualGPUOptions": {"display": options["display"]}} if "display" in options else {}
    return {"name": name, "deviceName": resource} | more


def resource_claim(name: str, *pods: str, node: str = NODE, admin: bool = False, **data: str) -> JSON:
    """Build a ResourceClaim that is reserved for pods. ``data`` is what its driver reports about its one device."""
    device = {"driver": "gpu.aliquot.dev", "pool": f"{node}-aliquot", "device": "d0"}
    results = [device | {"request": "vgpu", "adminAccess": admin}]
    reported = [device | {"data": {"gpuUUID": "GPU-1", **data}}] if data else []
    reserved = [{"resource": "pods", "name": pod} for pod in pods]
    status = {"allocation": {"devices": {"results": results}}, "devices": reported, "reservedFor": reserved}
    return {"metadata": {"name": name, "namespace": "default"}, "status": status}
