"""SRIOVGPUDevices: the GPUs that vGPUs can share.

Turing and Volta boards have one as well, although they have no virtual functions: Harvester's pages list the vGPUs of a
node only if one is enabled.
"""

from __future__ import annotations

from typing import Final

from aliquot.kubernetes.gpu.reasons import reason_word
from aliquot.kubernetes.kinds.harvester import (
    SRIOVGPUDevice,
    SRIOVGPUDeviceSpec,
    SRIOVGPUDeviceStatus,
    passes_through,
    skips_mig,
)
from aliquot.kubernetes.kinds.harvester_names import NODE_LABEL, SKIP_MIG_ANNOTATION, object_name
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionState, ConditionStatus, condition
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import GpuOutcome
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import PhysicalGpu
from aliquot.kubernetes.virtual_machines.harvester.placements import placements_annotation
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING, ObjectVerdict
from aliquot.kubernetes.virtual_machines.harvester.vgpu_slots import can_have_vgpus

GONE: Final = "GpuMissing"


def draft(view: NodeView, outcome: GpuOutcome) -> Draft | None:
    """Build the draft of a GPU's SRIOVGPUDevice; None for a GPU without one.

    A GPU has none if it cannot have vGPUs or will be passed through. A new object requests the current state.
    """
    physical_gpu = outcome.physical_gpu
    present = physical_gpu.present
    if not can_be_shared(physical_gpu) or (
        physical_gpu.device is None and passes_through(physical_gpu.claim) and not present
    ):
        return None
    status, why = _ready(outcome)
    return Draft(
        kind=SRIOVGPUDevice,
        name=physical_gpu.name,
        spec=SRIOVGPUDeviceSpec(address=physical_gpu.pci, node_name=view.node, enabled=bool(present)),
        status=_status(view, physical_gpu.device, status, why, present),
        labels=labels({NODE_LABEL: view.node}),
        annotations=placements_annotation(physical_gpu),
        why=f"GPU {physical_gpu.pci} can have vGPUs",
    )


def can_be_shared(physical_gpu: PhysicalGpu) -> bool:
    """Report whether the GPU can have vGPUs. During passthrough its object may be all that shows it."""
    return can_have_vgpus(physical_gpu.function) or (physical_gpu.passed_through and physical_gpu.device is not None)


def missing_draft(view: NodeView, found: SRIOVGPUDevice) -> Draft:
    """Build the draft for a missing GPU: its request is kept in case the GPU comes back."""
    if found.name != (name := object_name(view.node, found.spec.address)):
        text = f"the object of GPU {found.spec.address} must be named {name}: this one has no effect"
        why = ObjectVerdict("Misnamed", text, f"kubectl delete sriovgpudevice {found.name}")
        status = _status(view, found, "False", why, ())
        return Draft(SRIOVGPUDevice, found.name, found.spec, status, labels({NODE_LABEL: view.node}))
    text = f"no GPU with SR-IOV at {found.spec.address}: the request is kept until it is back"
    step = f'kubectl patch sriovgpudevice {found.name} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
    why = ObjectVerdict(GONE, text, f"{step} (if it was removed for good)")
    status = _status(view, found, "False", why, ())
    return Draft(SRIOVGPUDevice, found.name, found.spec, status, labels({NODE_LABEL: view.node}))


def _status(
    view: NodeView, found: SRIOVGPUDevice | None, status: ConditionStatus, why: ObjectVerdict, present: tuple[str, ...]
) -> SRIOVGPUDeviceStatus:
    previous = found.status.conditions if found is not None else ()
    return SRIOVGPUDeviceStatus(
        conditions=(condition(previous, "Ready", status, why, view.now),),
        observed_generation=found.metadata.generation if found is not None else 1,
        vf_addresses=tuple(address for address in present if "/" not in address),
        vgpu_devices=tuple(object_name(view.node, address) for address in present),
    )


def _ready(outcome: GpuOutcome) -> ConditionState:
    physical_gpu, decision, failure = outcome.physical_gpu, outcome.decision, outcome.failure
    present = physical_gpu.present
    wanted = physical_gpu.enabled if physical_gpu.device is not None else bool(present)
    if not wanted and not present:
        return "True", ObjectVerdict("Disabled", "virtual functions are disabled, as requested")
    if physical_gpu.gpu is None:
        return "Unknown", ObjectVerdict(physical_gpu.reason, physical_gpu.error)
    if decision.device is not None:
        return "False", decision.device
    if not wanted:
        what = "vGPUs are being destroyed" if physical_gpu.slots else "virtual functions are being disabled"
        return "False", failure or ObjectVerdict(PENDING, what)
    if physical_gpu.slots:
        return _slots_ready(physical_gpu)
    if not present:
        return "False", failure or ObjectVerdict(PENDING, "virtual functions are being enabled")
    if decision.mig_mode is not None and physical_gpu.gpu.mig.enabled != decision.mig_mode:
        mode = "enabled" if decision.mig_mode else "disabled"
        return "False", failure or ObjectVerdict(PENDING, f"MIG mode is being {mode}")
    return "True", ObjectVerdict("Enabled", f"{len(present)} virtual functions{_sharing_text(physical_gpu)}")


def _sharing_text(physical_gpu: PhysicalGpu) -> str:
    """Return how a MIG-capable GPU is shared, and who decided that; "" for other GPUs."""
    gpu = physical_gpu.gpu
    if gpu is None or not gpu.mig.capable:
        return ""
    if gpu.mig.enabled:
        return ", MIG mode on"
    skips = physical_gpu.device is not None and skips_mig(physical_gpu.device)
    why = f"requested by {SKIP_MIG_ANNOTATION}" if skips else "until no time-sliced vGPU is left"
    return f", MIG mode off ({why})"


def _slots_ready(physical_gpu: PhysicalGpu) -> ConditionState:
    """Return the state of a board whose vGPUs are mdevs of itself."""
    if not physical_gpu.observed_functions:
        text = f"no vGPU host driver offers vGPU types on GPU {physical_gpu.pci}"
        return "False", ObjectVerdict(reason_word("NO_VGPU_DRIVER"), text, "aliquot doctor")
    return "True", ObjectVerdict("Enabled", f"{len(physical_gpu.slots)} vGPUs at most, without virtual functions")
