"""PCIDeviceClaims: whole functions that users pass through, and reservations for vGPUs of vendor-specific VFIO."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from aliquot.core.model.pci import PciFunction
from aliquot.kubernetes.client.object_base import KubeObject, OwnerReference
from aliquot.kubernetes.kinds.harvester import (
    NOT_SERVED,
    NVIDIA,
    PCIDeviceClaim,
    PCIDeviceClaimSpec,
    PCIDeviceClaimStatus,
    VGPUDevice,
    passes_through,
)
from aliquot.kubernetes.kinds.harvester_names import (
    CLAIM_FINALIZER,
    PARENT_LABEL,
    RESOURCE_ANNOTATION,
    SKIP_BINDING_ANNOTATION,
    object_name,
)
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionState, condition
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import GpuOutcome
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, ObjectChange, Objects, Result
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels, plain
from aliquot.kubernetes.virtual_machines.harvester.other_functions import binding_state, is_own, other_functions
from aliquot.kubernetes.virtual_machines.harvester.pci_devices import vgpu_resource_for
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import VFIO, PhysicalGpu
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING, ObjectVerdict

USER = "admin"
"""The user of claims for vGPUs, as in Harvester."""
MISNAMED: Final = "Misnamed"


def reservation_drafts(view: NodeView, objects: Objects, outcome: GpuOutcome) -> Iterator[Draft]:
    """Yield the claim of each virtual function that carries, or should carry, a vGPU of vendor-specific VFIO.

    The claim exists before the vGPU and goes after it.
    """
    physical_gpu, drivers = outcome.physical_gpu, {f.address: f.driver for f in view.functions}
    for address, found in sorted(physical_gpu.vgpus.items()):
        name = object_name(view.node, address)
        claim, resource = objects.claims.get(name), vgpu_resource_for(outcome, address)
        device = objects.functions.get(name)
        if not resource or device is None or not (device.metadata.uid and found.metadata.uid):
            continue
        if claim is not None and (passes_through(claim) or claim.metadata.deletion_timestamp is not None):
            continue
        exists = physical_gpu.live_vgpus.get(address) is not None
        pending = outcome.failure or ObjectVerdict(PENDING, "the vGPU is being created")
        why = ObjectVerdict("Configured", f"it reserves the function for {resource}") if exists else pending
        yield Draft(
            kind=PCIDeviceClaim,
            name=name,
            spec=PCIDeviceClaimSpec(address=address, node_name=view.node, user_name=USER),
            status=_status(view, claim, drivers.get(address, ""), True, ("True" if exists else "False", why)),
            labels=labels({PARENT_LABEL: physical_gpu.name}),
            annotations={SKIP_BINDING_ANNOTATION: "true", RESOURCE_ANNOTATION: resource},
            owners=(_owner_reference(device), _owner_reference(found)),
            why=f"{resource} on {address}",
        )


def _owner_reference(owner: KubeObject) -> OwnerReference:
    return OwnerReference(owner.TYPE.kind, owner.name, owner.metadata.uid, owner.TYPE.api_version)


def claims_to_delete(view: NodeView, objects: Objects, found: Mapping[str, GpuOutcome]) -> Iterator[PCIDeviceClaim]:
    """Yield reservations without a vGPU. ``found`` are the GPUs by their virtual functions.

    A reservation stays while it is unknown whether its vGPU exists.
    """
    for _, claim in sorted(objects.claims.items()):
        outcome = found.get(claim.spec.address)
        if passes_through(claim) or claim.spec.node_name != view.node or outcome is None:
            continue
        unknown = (
            claim.spec.address in outcome.physical_gpu.function.virtual
            and claim.spec.address not in outcome.physical_gpu.observed_functions
        )
        exists = claim.spec.address in outcome.physical_gpu.live_vgpus
        if not unknown and not exists and vgpu_resource_for(outcome, claim.spec.address) == "":
            yield claim


def owner_changes(to_delete: Iterable[PCIDeviceClaim]) -> Iterator[ObjectChange]:
    """Yield the changes of owners that must precede the deletion of reservations.

    While pcidevices runs on any node, its webhook lets only its own agents delete a claim that a VGPUDevice owns.
    """
    for claim in to_delete:
        meta = claim.metadata
        remaining = [each for each in meta.owner_references if each.kind != VGPUDevice.TYPE.kind]
        if len(remaining) != len(meta.owner_references):
            body = {"metadata": {"ownerReferences": plain(remaining)}}
            why = "pcidevices refuses its deletion while a VGPUDevice owns it"
            yield ObjectChange("patch", claim.TYPE.kind, claim.name, body, meta.resource_version, meta.uid, why)


def claim_drafts(
    view: NodeView, objects: Objects, found: Mapping[str, GpuOutcome], results: Mapping[str, Result]
) -> Iterator[Draft]:
    """Yield the drafts of claims that pass functions through. ``found`` are the GPUs by PCI address, ``results`` those
    of the last attempts.

    Unless the agent serves all devices, only NVIDIA's functions and their IOMMU group peers are ours. Another claim
    only gets a condition that says so; nothing that pcidevices wrote is changed.
    """
    functions, others = {f.address: f for f in view.functions}, other_functions(view)
    for name, claim in sorted(objects.claims.items()):
        function = functions.get(claim.spec.address)
        if claim.spec.node_name != view.node or not passes_through(claim):
            continue
        if function is None and not (view.all_devices or _is_missing_nvidia_function(claim, objects)):
            yield Draft(PCIDeviceClaim, name, claim.spec, _not_served_status(view, claim))
            continue
        outcome = found.get(claim.spec.address)
        if name != object_name(view.node, claim.spec.address):
            state: ConditionState = "False", _misnamed_verdict(view, claim)
        elif function is None:
            state = "False", _absent_verdict(claim)
        elif outcome is not None:
            state = _gpu_state(outcome)
        elif function.address in others:
            state = binding_state(view, function, claim, results)
        else:
            state = _board_function_state(view, function, [each.physical_gpu for each in found.values()])
        driver = function.driver if function is not None and state[1].reason != MISNAMED else ""
        yield Draft(PCIDeviceClaim, name, claim.spec, _status(view, claim, driver, driver == VFIO, state))


def _is_missing_nvidia_function(claim: PCIDeviceClaim, objects: Objects) -> bool:
    """Report whether a claim is about a missing NVIDIA function, by its PCIDevice or by the conditions that we
    wrote.
    """
    device = objects.functions.get(claim.name)
    was_served = any(each.reason != NOT_SERVED for each in claim.status.conditions)
    return was_served or (device is not None and device.status.vendor_id == NVIDIA)


def _not_served_status(view: NodeView, claim: PCIDeviceClaim) -> PCIDeviceClaimStatus:
    text = (
        f"node {view.node} has no NVIDIA device at {claim.spec.address}, and its agent serves no other device "
        "without --all-devices"
    )
    why = ObjectVerdict(NOT_SERVED, text, f"kubectl delete pcideviceclaim {claim.name}")
    return msgspec.structs.replace(
        claim.status,
        conditions=(condition(claim.status.conditions, "Ready", "False", why, view.now),),
        observed_generation=claim.metadata.generation or 1,
    )


def _misnamed_verdict(view: NodeView, claim: PCIDeviceClaim) -> ObjectVerdict:
    name, address = object_name(view.node, claim.spec.address), claim.spec.address
    text = f"the claim on {address} must be named {name}: this one names another function"
    return ObjectVerdict(MISNAMED, text, f"kubectl delete pcideviceclaim {claim.name}")


def _absent_verdict(claim: PCIDeviceClaim) -> ObjectVerdict:
    text = f"{claim.spec.address} is not on the PCI bus: the request is kept until the device is back"
    return ObjectVerdict("GpuMissing", text, f"kubectl delete pcideviceclaim {claim.name} (if it is gone for good)")


def finalizer_changes(
    view: NodeView, objects: Objects, physical_gpus: Mapping[str, PhysicalGpu]
) -> Iterator[ObjectChange]:
    """Yield the changes of finalizers: a claim is released only when its passthrough is undone.

    A claim that Aliquot does not serve is released: nothing else would.
    """
    present, others = {f.address: f for f in view.functions}, other_functions(view)
    for _, claim in sorted(objects.claims.items()):
        function, address = present.get(claim.spec.address), claim.spec.address
        if claim.spec.node_name != view.node:
            continue
        leaving, held = claim.metadata.deletion_timestamp is not None, CLAIM_FINALIZER in claim.metadata.finalizers
        physical_gpu = physical_gpus.get(address) if passes_through(claim) else None
        is_active = (physical_gpu is not None and physical_gpu.claim is claim) or (
            address in others and is_own(view, claim)
        )
        passed_through = is_active and function is not None and function.driver == VFIO
        if leaving and held and not passed_through:
            remaining = [f for f in claim.metadata.finalizers if f != CLAIM_FINALIZER]
            yield _finalizer_change(claim, remaining, "nothing is left to undo")
        elif not leaving and not held and is_active:
            yield _finalizer_change(claim, [*claim.metadata.finalizers, CLAIM_FINALIZER], "passthrough must be undone")


def _finalizer_change(claim: PCIDeviceClaim, remaining: list[str], why: str) -> ObjectChange:
    meta = claim.metadata
    body = {"metadata": {"finalizers": remaining}}
    return ObjectChange("patch", claim.TYPE.kind, claim.name, body, meta.resource_version, meta.uid, why)


def _status(
    view: NodeView, found: PCIDeviceClaim | None, driver: str, passed_through: bool, state: ConditionState
) -> PCIDeviceClaimStatus:
    """Return the status. The driver to bind again is the one that was seen before passthrough."""
    previous = found.status if found is not None else PCIDeviceClaimStatus()
    return PCIDeviceClaimStatus(
        conditions=(condition(previous.conditions, "Ready", *state, view.now),),
        observed_generation=(found.metadata.generation or 1) if found is not None else 1,
        kernel_driver_to_unbind=previous.kernel_driver_to_unbind if driver == VFIO else driver,
        passthrough_enabled=passed_through,
    )


def _gpu_state(outcome: GpuOutcome) -> ConditionState:
    physical_gpu, decision = outcome.physical_gpu, outcome.decision
    leaving = physical_gpu.claim is not None and physical_gpu.claim.metadata.deletion_timestamp is not None
    if physical_gpu.passed_through and not leaving:
        return "True", ObjectVerdict("PassedThrough", f"GPU {physical_gpu.pci} is passed through")
    if physical_gpu.gpu is None and not physical_gpu.without_driver and decision.intent is not None:
        return "Unknown", ObjectVerdict(physical_gpu.reason, physical_gpu.error)
    if decision.claim is not None:
        return "False", decision.claim
    text = "taken back" if leaving else "passed through"
    return "False", outcome.failure or ObjectVerdict(PENDING, f"GPU {physical_gpu.pci} is being {text}")


def _board_function_state(
    view: NodeView, function: PciFunction, physical_gpus: Sequence[PhysicalGpu]
) -> ConditionState:
    """Return the state of a function that is not a GPU: it goes with a GPU, or through a VGPUDevice."""
    if function.driver == VFIO:
        return "True", ObjectVerdict("PassedThrough", f"{function.address} is passed through")
    if function.physfn:
        name = object_name(view.node, function.address)
        text = f"{function.address} is a virtual function: VMs get it through VGPUDevice {name}"
        return "False", ObjectVerdict("VirtualFunction", text, f"kubectl delete pcideviceclaim {name}")
    group = function.iommu_group
    gpu_name = next((c.name for c in physical_gpus if group is not None and c.function.iommu_group == group), "")
    text = f"{function.address} is passed through together with the GPU of its IOMMU group"
    return "False", ObjectVerdict(
        "NotAGpu", text, f"kubectl get pcideviceclaim {gpu_name}" if gpu_name else "aliquot show"
    )
