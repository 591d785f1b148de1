"""SRIOVGPUDevices: the GPUs that can have virtual functions."""

from __future__ import annotations

from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice, SRIOVGPUDeviceSpec, SRIOVGPUDeviceStatus, passes_through
from aliquot.kubernetes.kinds.harvester_names import NODE_LABEL, object_name
from aliquot.kubernetes.virtual_machines.harvester.conditions import PENDING, ConditionState, ConditionStatus, condition
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import GpuOutcome
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import PhysicalGpu
from aliquot.kubernetes.virtual_machines.harvester.reasons import ObjectVerdict, advice

GONE = "GpuMissing"


def draft(view: NodeView, outcome: GpuOutcome) -> Draft | None:
    """What the object of a GPU says; None for a GPU that gets none: it can have no virtual functions, or is about to be
    handed out. A new one takes its wish from what is.
    """
    physical_gpu = outcome.physical_gpu
    present = physical_gpu.function.virtual
    if not supports_sriov(physical_gpu) or (
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
        why=f"GPU {physical_gpu.pci} can have virtual functions",
    )


def supports_sriov(physical_gpu: PhysicalGpu) -> bool:
    """Whether the GPU can have virtual functions; of one that is handed out it cannot be told."""
    return physical_gpu.function.sriov or (physical_gpu.passed_through and physical_gpu.device is not None)


def missing_draft(view: NodeView, found: SRIOVGPUDevice) -> Draft:
    """The object of a GPU that is not there any more, although it should be shared: the wish outlasts a GPU that is
    gone for a while.
    """
    if found.name != (name := object_name(view.node, found.spec.address)):
        text = f"the object of GPU {found.spec.address} is {name}: this one is nobody's"
        why = ObjectVerdict("Misnamed", advice(text, f"kubectl delete sriovgpudevice {found.name}"))
        status = _status(view, found, "False", why, ())
        return Draft(SRIOVGPUDevice, found.name, found.spec, status, labels({NODE_LABEL: view.node}))
    text = f"there is no GPU with SR-IOV at {found.spec.address}: the wish is kept until it is back"
    step = f'kubectl patch sriovgpudevice {found.name} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
    why = ObjectVerdict(GONE, advice(text, f"{step} (if it was taken out for good)"))
    status = _status(view, found, "False", why, ())
    return Draft(SRIOVGPUDevice, found.name, found.spec, status, labels({NODE_LABEL: view.node}))


def _status(
    view: NodeView, found: SRIOVGPUDevice | None, status: ConditionStatus, why: ObjectVerdict, present: tuple[str, ...]
) -> SRIOVGPUDeviceStatus:
    previous = found.status.conditions if found is not None else ()
    return SRIOVGPUDeviceStatus(
        conditions=(condition(previous, "Ready", status, why, view.now),),
        observed_generation=found.metadata.generation if found is not None else 1,
        vf_addresses=present,
        vgpu_devices=tuple(object_name(view.node, address) for address in present),
    )


def _ready(outcome: GpuOutcome) -> ConditionState:
    physical_gpu, decision, failure = outcome.physical_gpu, outcome.decision, outcome.failure
    present = physical_gpu.function.virtual
    wanted = physical_gpu.enabled if physical_gpu.device is not None else bool(present)
    if not wanted and not present:
        return "True", ObjectVerdict("Disabled", "virtual functions are off, as wished")
    if physical_gpu.gpu is None:
        return "Unknown", ObjectVerdict(physical_gpu.reason, physical_gpu.error)
    if decision.device is not None:
        return "False", decision.device
    if not wanted:
        return "False", failure or ObjectVerdict(PENDING, "virtual functions are being switched off")
    if not present:
        return "False", failure or ObjectVerdict(PENDING, "virtual functions are being switched on")
    if decision.mig_mode is not None and physical_gpu.gpu.mig.enabled != decision.mig_mode:
        mode = "on" if decision.mig_mode else "off"
        return "False", failure or ObjectVerdict(PENDING, f"MIG mode is being switched {mode}")
    mig = f", MIG mode {'on' if physical_gpu.gpu.mig.enabled else 'off'}" if physical_gpu.gpu.mig.capable else ""
    return "True", ObjectVerdict("Enabled", f"{len(present)} virtual functions{mig}")
