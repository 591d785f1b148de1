"""Rules for VGPUDevices."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import PARENT_LABEL
from aliquot.kubernetes.virtual_machines.harvester.admission import vgpu_capacity as room
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import describe_holder
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import disable_command, moved_errors, name_errors
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import (
    AdmissionSnapshot,
    ObjectEdit,
    parent_gpu_name,
    shorten_list,
)
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: ObjectEdit[VGPUDevice], new: VGPUDevice, snapshot: AdmissionSnapshot) -> Iterator[str]:
    """A restored one comes without status: which types can be made is then for the agent to say."""
    yield from name_errors(edit.name, new.spec.node_name, new.spec.address)
    if new.spec.enabled and not new.spec.type_name:
        yield "vGPUTypeName cannot be empty when a vGPU is enabled"


def update(
    edit: ObjectEdit[VGPUDevice], old: VGPUDevice, new: VGPUDevice, snapshot: AdmissionSnapshot
) -> Iterator[str]:
    yield from moved_errors(
        (old.spec.node_name, f"{old.spec.address} of {old.spec.parent}"),
        (new.spec.node_name, f"{new.spec.address} of {new.spec.parent}"),
    )
    if old.spec.enabled and not new.spec.enabled:
        if holder := describe_holder(snapshot, edit.name):
            yield holder
    elif old.spec.enabled and new.spec.type_name != old.spec.type_name:
        previous_type = old.spec.type_name or old.status.configured
        why = f"{edit.name} is enabled as {previous_type}: disable it before its type is changed"
        yield advice(why, disable_command("vgpudevice", edit.name))
    elif new.spec.enabled and not old.spec.enabled:
        yield from _enabling_errors(edit.name, old, new, snapshot)


def delete(edit: ObjectEdit[VGPUDevice], old: VGPUDevice, snapshot: AdmissionSnapshot) -> Iterator[str]:
    if old.spec.node_name in snapshot.nodes and (holder := describe_holder(snapshot, edit.name)):
        yield holder


def _enabling_errors(name: str, old: VGPUDevice, new: VGPUDevice, snapshot: AdmissionSnapshot) -> Iterator[str]:
    wanted, parent = new.spec.type_name, parent_gpu_name(new)
    gpu = snapshot.gpus.get(parent)
    if not wanted:
        yield f"vGPUTypeName cannot be empty: {_available_text(old, snapshot)}"
        return
    if gpu is not None and not gpu.spec.enabled:
        step = f'kubectl patch sriovgpudevice {parent} --type merge -p \'{{"spec":{{"enabled":true}}}}\''
        yield advice(f"SRIOVGPUDevice {parent} is disabled: enable it first", step)
    if old.status.configured == wanted:
        return  # there already: made by hand, or enabled again before it was taken away
    if wanted not in old.status.available_types:
        misfit = room.explain_misfit(snapshot, new) if old.status.available_types else ""
        yield f"{wanted} is not a valid profile for {name} now: {_available_text(old, snapshot)}" + (
            misfit and f"; {misfit}"
        )
        return
    if why := room.explain_misfit(snapshot, new):
        yield why


def _available_text(device: VGPUDevice, snapshot: AdmissionSnapshot) -> str:
    """What could be chosen, or why nothing can."""
    types = tuple(sorted(device.status.available_types))
    if types:
        return f"available are {shorten_list(types, 20)}"
    ready = next((c for c in device.status.conditions if c.type == "Ready"), None)
    if ready is not None and ready.status != "True" and ready.message:
        return f"nothing is available ({ready.message})"
    parent = parent_gpu_name(device)
    mig = snapshot.migs.get(parent)
    if mig is not None and not any(each.instances for each in mig.status.profile_status):
        why = f"MIG is on, and {parent} has no GPU instance: set requested in its MigConfiguration and enable that"
        return advice(f"nothing is available ({why})", f"kubectl edit migconfiguration {parent}")
    enabled = [v for v in snapshot.vgpus_of(parent) if v.name != device.name and v.spec.enabled]
    names = tuple(f"{v.spec.type_name} on {v.name}" for v in sorted(enabled, key=lambda v: v.name))
    why = f"{parent} is full: {shorten_list(names)}" if names else "its driver does not answer"
    return advice(f"nothing is available ({why})", f"kubectl get vgpudevices -l {PARENT_LABEL}={parent}")
