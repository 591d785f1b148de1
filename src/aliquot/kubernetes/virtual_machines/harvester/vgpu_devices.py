"""VGPUDevices: the virtual functions with their vGPUs."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping

import msgspec

from aliquot.core.model.inventory import Vgpu
from aliquot.core.planner.vgpu.creatable_types import type_answers
from aliquot.core.planner.vgpu.function_assignment import usable_functions
from aliquot.kubernetes.kinds.harvester import VGPUDevice, VGPUDeviceSpec, VGPUDeviceStatus
from aliquot.kubernetes.kinds.harvester_names import CONFIGURED, NODE_LABEL, PARENT_LABEL, object_name
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionState, ConditionStatus, condition
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import GpuOutcome
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft, labels
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import VFIO, PhysicalGpu, list_physical_gpus
from aliquot.kubernetes.virtual_machines.harvester.plugin_parameters import requested_parameters
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING, ObjectVerdict
from aliquot.kubernetes.virtual_machines.harvester.vgpu_assignment import has_known_type, is_owned, status_uuid

replace = msgspec.structs.replace


def drafts(view: NodeView, outcome: GpuOutcome) -> Iterator[Draft]:
    """Yield an object for each virtual function of a GPU, and for disabled ones while the GPU should have them.

    A new object waits until the driver reports what its function carries, so that it adopts an existing vGPU.
    """
    physical_gpu, free = outcome.physical_gpu, _free_functions(outcome.physical_gpu)
    offered = _creatable_types(physical_gpu) if free else {}
    for address in physical_gpu.addresses:
        found = physical_gpu.vgpus.get(address)
        unknown = found is None and address not in physical_gpu.observed_functions
        if unknown or (address not in physical_gpu.present and not physical_gpu.enabled):
            continue
        state, why = _ready_state(outcome, address)
        status = _status(physical_gpu, address, offered if address in free else {})
        yield Draft(
            kind=VGPUDevice,
            name=object_name(view.node, address),
            spec=_spec(view, physical_gpu, address),
            status=_with_ready_condition(view, found, status, state, why),
            labels=labels({PARENT_LABEL: physical_gpu.name, NODE_LABEL: view.node}),
            why=f"{address} can carry a vGPU of {physical_gpu.pci}",
        )


def objects_to_delete(view: NodeView, objects: Objects, being_created: Collection[str]) -> Iterator[VGPUDevice]:
    """Yield objects whose virtual function is gone and should not come back, as it would after a reboot.

    ``being_created`` are the SRIOVGPUDevices that this round creates.
    """
    shown = list_physical_gpus(view, objects)
    present = {object_name(view.node, address) for gpu in shown for address in gpu.present}
    for name, found in sorted(objects.vgpus.items()):
        parent = objects.gpus.get(owner := object_name(view.node, found.spec.parent))
        expected = owner in being_created or (parent is not None and parent.spec.enabled)
        if found.spec.node_name == view.node and name not in present and not expected:
            yield found


def waiting_drafts(view: NodeView, objects: Objects) -> Iterator[Draft]:
    """Yield the drafts of objects that wait for a missing GPU."""
    present_gpus = {f.address for f in view.functions if f.gpu}
    for name, found in sorted(objects.vgpus.items()):
        parent = objects.gpus.get(object_name(view.node, found.spec.parent))
        expected = parent is not None and parent.spec.enabled
        if found.spec.node_name == view.node and expected and found.spec.parent not in present_gpus:
            why = ObjectVerdict("GpuMissing", f"no GPU at {found.spec.parent}: the request is kept until it is back")
            status = _with_ready_condition(view, found, VGPUDeviceStatus(uuid=_recorded_uuid(found)), "False", why)
            yield Draft(VGPUDevice, name, found.spec, status, labels({NODE_LABEL: view.node}))


def _with_ready_condition(
    view: NodeView, found: VGPUDevice | None, status: VGPUDeviceStatus, state: ConditionStatus, why: ObjectVerdict
) -> VGPUDeviceStatus:
    previous = found.status.conditions if found is not None else ()
    generation = found.metadata.generation if found is not None else 1
    ready = condition(previous, "Ready", state, why, view.now)
    return replace(status, conditions=(ready,), observed_generation=generation)


def _spec(view: NodeView, physical_gpu: PhysicalGpu, address: str) -> VGPUDeviceSpec:
    """Return the spec of a new object, which requests the current state."""
    vgpu = physical_gpu.live_vgpus.get(address)
    adopted = vgpu is not None and has_known_type(physical_gpu, vgpu)
    name = vgpu.type if vgpu is not None and adopted else ""
    return VGPUDeviceSpec(
        address=address, enabled=adopted, node_name=view.node, parent=physical_gpu.pci, type_name=name
    )


def _free_functions(physical_gpu: PhysicalGpu) -> frozenset[str]:
    """Return the virtual functions and slots that could carry a vGPU now."""
    gpu = physical_gpu.gpu
    if physical_gpu.slots:
        return physical_gpu.observed_functions.difference(physical_gpu.live_vgpus)
    if gpu is None or gpu.virtual is None or not gpu.virtual.functions:
        return frozenset()
    passed_through = frozenset(f.pci for f in gpu.virtual.functions if f.driver == VFIO)
    return frozenset(pci for _, pci in usable_functions(gpu, passed_through) if pci not in physical_gpu.live_vgpus)


def _creatable_types(physical_gpu: PhysicalGpu) -> Mapping[str, str]:
    """Return the types that a free function can carry now, each with the id that Harvester writes."""
    assert physical_gpu.inventory is not None
    assert physical_gpu.gpu is not None
    prefix = "" if physical_gpu.uses_vendor_vfio else "nvidia-"
    return {
        each.name: f"{prefix}{each.id}"
        for each in type_answers(physical_gpu.inventory, physical_gpu.gpu)
        if each.creatable
    }


def _status(physical_gpu: PhysicalGpu, address: str, offered: Mapping[str, str]) -> VGPUDeviceStatus:
    """Return what the function carries.

    A vGPU that the object does not own is not reported as configured: disabling the object would then destroy it.
    """
    found, vgpu = physical_gpu.vgpus.get(address), physical_gpu.live_vgpus.get(address)
    if vgpu is not None:
        if not is_owned(physical_gpu, found, vgpu):
            return VGPUDeviceStatus()
        return VGPUDeviceStatus(configured=vgpu.type, uuid=status_uuid(physical_gpu, vgpu), state=CONFIGURED)
    if found is not None and address in physical_gpu.present and address not in physical_gpu.observed_functions:
        return found.status
    return VGPUDeviceStatus(available_types=dict(offered), uuid=_recorded_uuid(found) if found is not None else "")


def _recorded_uuid(found: VGPUDevice) -> str:
    """Return the recorded ``status.uuid`` of a vGPU that a reboot destroyed and that should come back.

    It is the UUID by which VMs know the vGPU, or the number of the type.
    """
    known = found.status.uuid if found.spec.enabled else ""
    if known.isascii() and known.isdecimal():
        return known
    try:
        return str(uuid.UUID(known))
    except ValueError:
        return ""


def _ready_state(outcome: GpuOutcome, address: str) -> ConditionState:
    physical_gpu, refused, failure = outcome.physical_gpu, outcome.decision.vgpus, outcome.failure
    found, vgpu = physical_gpu.vgpus.get(address), physical_gpu.live_vgpus.get(address)
    if found is None:
        return _new_state(physical_gpu, vgpu)
    if physical_gpu.gpu is None and (found.spec.enabled or found.status.state):
        return "Unknown", ObjectVerdict(physical_gpu.reason, physical_gpu.error)
    if address in refused:
        return "False", refused[address]
    if not found.spec.enabled:
        if vgpu is None:
            return "True", ObjectVerdict("Disabled", "no vGPU, as requested")
        return "False", failure or ObjectVerdict(PENDING, f"{vgpu.type} is being destroyed")
    if vgpu is not None:
        return _carrying_state(found, vgpu, failure)
    if address not in physical_gpu.present:
        text = f"the virtual functions of {physical_gpu.pci} are disabled and will be enabled again"
        return "False", failure or ObjectVerdict("FunctionsOff", text)
    return "False", failure or ObjectVerdict(PENDING, f"{found.spec.type_name} is being created")


def _carrying_state(found: VGPUDevice, vgpu: Vgpu, failure: ObjectVerdict | None) -> ConditionState:
    """Return the state of an object that carries a vGPU of its type. It may still lack requested plugin parameters."""
    wanted = requested_parameters(found)
    if isinstance(wanted, str) and wanted != vgpu.parameters:
        text = f"{vgpu.type} is created again with plugin parameters {wanted or 'none'}"
        return "False", failure or ObjectVerdict(PENDING, text)
    more = f" with {vgpu.parameters}" if vgpu.parameters else ""
    return "True", ObjectVerdict("Configured", f"it carries {vgpu.type}{more}")


def _new_state(physical_gpu: PhysicalGpu, vgpu: Vgpu | None) -> ConditionState:
    if vgpu is None:
        return "True", ObjectVerdict("Disabled", "no vGPU, as requested")
    if has_known_type(physical_gpu, vgpu):
        return "True", ObjectVerdict("Configured", f"it carries {vgpu.type}")
    text = f"it carries a vGPU of {vgpu.type}, a type that no table lists: it is left alone"
    return "False", ObjectVerdict("Untracked", text, f"aliquot vgpu list {physical_gpu.pci}")
