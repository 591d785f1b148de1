"""VMs whose GPUs come from ResourceClaims, and the claims, in few words."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance
from aliquot.kubernetes.kinds.vm_claims import POD_CLAIM_ANNOTATION, VmClaim, VmClaimTemplate


def _spec(claim: str, template: str) -> dict[str, Any]:
    reference = {"resourceClaimTemplateName": template} if template else {"resourceClaimName": claim}
    entry = {"name": "gpu-1", "claimName": "gpu", "requestName": "vgpu"}
    return {"resourceClaims": [{"name": "gpu"} | reference], "domain": {"devices": {"gpus": [entry]}}}


def claiming_vm(name: str, claim: str = "", *, template: str = "", strategy: str = "Always") -> VirtualMachine:
    spec = {"runStrategy": strategy, "template": {"spec": _spec(claim, template)}}
    return msgspec.convert({"metadata": {"name": name, "namespace": "default"}, "spec": spec}, VirtualMachine)


def claiming_instance(
    name: str, node: str, claim: str = "", *, template: str = "", target: str = ""
) -> VirtualMachineInstance:
    status = {"phase": "Running" if node else "Scheduling", "nodeName": node, "migrationState": {"targetNode": target}}
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": _spec(claim, template), "status": status}
    return msgspec.convert(body, VirtualMachineInstance)


def _requests(classes: tuple[str, ...]) -> dict[str, Any]:
    if len(classes) == 1:
        return {"devices": {"requests": [{"name": "vgpu", "exactly": {"deviceClassName": classes[0]}}]}}
    alternatives = [{"name": f"a{number}", "deviceClassName": each} for number, each in enumerate(classes)]
    return {"devices": {"requests": [{"name": "vgpu", "firstAvailable": alternatives}]}}


def claim_template(name: str, *classes: str) -> VmClaimTemplate:
    body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"spec": _requests(classes)}}
    return msgspec.convert(body, VmClaimTemplate)


def vm_claim(name: str, *classes: str, node: str = "", granted: str = "vgpu", launcher: str = "") -> VmClaim:
    """Build a claim. ``launcher`` is the pod for which Kubernetes made it from a template."""
    notes = {POD_CLAIM_ANNOTATION: "gpu"} if launcher else {}
    result = {"request": granted, "driver": "gpu.aliquot.dev", "pool": node, "device": "d0"}
    status: dict[str, Any] = {"allocation": {"devices": {"results": [result]}} if node else None}
    status |= {"reservedFor": [{"resource": "pods", "name": launcher}]} if launcher else {}
    meta = {"name": name, "namespace": "default", "annotations": notes}
    return msgspec.convert({"metadata": meta, "spec": _requests(classes), "status": status}, VmClaim)
