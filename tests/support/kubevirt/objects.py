"""KubeVirt's objects as they are written: a user's VM, and the objects derived from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

JSON = dict[str, Any]
KEEP_MACHINE = "kubevirt.io/virtualMachineControllerFinalize"
KEEP_INSTANCE = "kubevirt.io/foregroundDeleteVirtualMachine"


def machines(namespace: str) -> str:
    return f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachines"


def instances(namespace: str) -> str:
    return f"/apis/kubevirt.io/v1/namespaces/{namespace}/virtualmachineinstances"


def machine(
    name: str,
    gpus: Sequence[str | JSON] = (),
    host_devices: Sequence[str | JSON] = (),
    strategy: str = "Always",
    selector: dict[str, str] | None = None,
) -> JSON:
    """Build a VirtualMachine as a user writes it."""
    inside: JSON = {}
    for field, given in (("gpus", gpus), ("hostDevices", host_devices)):
        rows = [
            {"name": f"{field.lower()}{n}", "deviceName": d} if isinstance(d, str) else d for n, d in enumerate(given)
        ]
        if rows:
            inside[field] = rows
    spec = {"domain": {"devices": inside, "memory": {"guest": "1Gi"}}, "nodeSelector": selector or {}}
    template = {"metadata": {"labels": {"harvesterhci.io/vmName": name}}, "spec": spec}
    return written("VirtualMachine", name, {"runStrategy": strategy, "template": template})


def written(kind: str, name: str, spec: JSON) -> JSON:
    return {"apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def instance_of(one: JSON) -> JSON:
    meta, template = one["metadata"], one["spec"]["template"]
    made = written("VirtualMachineInstance", meta["name"], template["spec"])
    owner = {"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": meta["name"], "uid": meta["uid"]}
    owner |= {"controller": True, "blockOwnerDeletion": True}
    labels = (template.get("metadata") or {}).get("labels") or {}
    made["metadata"] |= {"labels": labels, "ownerReferences": [owner], "finalizers": [KEEP_INSTANCE]}
    return made


def wanted(one: JSON, running: JSON | None) -> bool:
    """Report whether an instance should exist now."""
    spec = one["spec"]
    strategy = spec.get("runStrategy") or ("Always" if spec.get("running") else "Halted")
    phase = ((running or {}).get("status") or {}).get("phase", "")
    if strategy == "Always":
        return bool(phase not in ("Succeeded", "Failed"))
    if strategy == "RerunOnFailure":
        return bool(phase != "Failed")
    return bool(strategy == "Once" or (strategy == "Manual" and running is not None))


def machine_status(running: JSON | None, wanted: bool) -> JSON:
    status = (running or {}).get("status") or {}
    phase = status.get("phase", "")
    unschedulable = any(row.get("reason") == "Unschedulable" for row in status.get("conditions") or [])
    if running is None:
        word = "Starting" if wanted else "Stopped"
    elif running["metadata"].get("deletionTimestamp") or not wanted:
        word = "Stopping"
    else:
        word = "Running" if phase == "Running" else "ErrorUnschedulable" if unschedulable else "Starting"
    return {"created": running is not None, "ready": phase == "Running", "printableStatus": word}
