"""Nodes, vGPUs and VMs in few words, for tests of devices and their holders."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import PCIDevice, PCIDeviceClaim, VGPUDevice
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance

A2_4Q, A2_4A, L40S = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-4A", "nvidia.com/AD102GL_L40S"
MDEV = "dd6772a8-7db8-4e96-9a73-f94c389d9bc3"


def node(name: str, usable: dict[str, int], *, total: dict[str, int] | None = None, **more: Any) -> Node:
    """Build a node. ``more`` may be cordoned=True, ready="False", labels={...}."""
    labels = {"kubernetes.io/hostname": name} | more.get("labels", {})
    body = {
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": more.get("cordoned", False)},
        "status": {
            "capacity": {key: str(count) for key, count in (total or usable).items()},
            "allocatable": {key: str(count) for key, count in usable.items()},
            "conditions": [{"type": "Ready", "status": more.get("ready", "True")}],
        },
    }
    return msgspec.convert(body, Node)


def devices(*resources: str) -> dict[str, Any]:
    return {"gpus": [{"name": f"gpu-{n}", "deviceName": resource} for n, resource in enumerate(resources, 1)]}


def machine(name: str, *resources: str, namespace: str = "default", **more: Any) -> VirtualMachine:
    """Build a VM. ``more`` may be strategy="Halted", labels, selector, deleted=True."""
    domain = {"domain": {"devices": devices(*resources)}, "nodeSelector": more.get("selector", {})}
    meta = {"name": name, "namespace": namespace, "labels": more.get("labels", {})}
    meta |= {"deletionTimestamp": "2026-01-02T03:04:05Z"} if more.get("deleted") else {}
    spec = {"runStrategy": more.get("strategy", "Always"), "template": {"spec": domain}}
    return msgspec.convert({"metadata": meta, "spec": spec}, VirtualMachine)


def instance(
    name: str, node: str, *resources: str, namespace: str = "default", phase: str = "Running", **more: Any
) -> VirtualMachineInstance:
    meta = {"name": name, "namespace": namespace, "labels": more.get("labels", {})}
    body = {
        "metadata": meta,
        "spec": {"domain": {"devices": devices(*resources)}, "nodeSelector": more.get("selector", {})},
        "status": {"phase": phase, "nodeName": node, "migrationState": more.get("migration")},
    }
    return msgspec.convert(body, VirtualMachineInstance)


def vgpu(
    node: str, address: str, type_name: str, *, configured: bool = True, uuid: str = MDEV, enabled: bool = True
) -> VGPUDevice:
    """Build a vGPU. ``uuid`` is that of the mdev, or a type's number with vendor-specific VFIO."""
    spec = {"address": address, "nodeName": node, "enabled": enabled, "vGPUTypeName": type_name if enabled else ""}
    status = {"configureVGPUTypeName": type_name, "uuid": uuid, "vGPUStatus": names.CONFIGURED} if configured else {}
    meta = {"name": names.object_name(node, address), "labels": {names.NODE_LABEL: node}}
    return msgspec.convert({"metadata": meta, "spec": spec, "status": status}, VGPUDevice)


def function(node: str, address: str, resource: str, ids: str = "10de:26b9") -> PCIDevice:
    vendor, _, device = ids.partition(":")
    status = {"address": address, "nodeName": node, "resourceName": resource, "vendorId": vendor, "deviceId": device}
    meta = {"name": names.object_name(node, address), "labels": {names.NODE_LABEL: node}}
    return msgspec.convert({"metadata": meta, "status": status}, PCIDevice)


def claim(node: str, address: str, *, passed: bool = True, reserves: bool = False) -> PCIDeviceClaim:
    annotations = {names.SKIP_BINDING_ANNOTATION: "true"} if reserves else {}
    body = {
        "metadata": {"name": names.object_name(node, address), "annotations": annotations},
        "spec": {"address": address, "nodeName": node, "userName": "admin"},
        "status": {"passthroughEnabled": passed},
    }
    return msgspec.convert(body, PCIDeviceClaim)
