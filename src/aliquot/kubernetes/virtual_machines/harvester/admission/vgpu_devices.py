"""Rules for VGPUDevices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aliquot.core.model.vgpu_types import tables
from aliquot.core.planner.rules import RuleRefusal
from aliquot.errors import Message
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.harvester_names import PARAMETERS_ANNOTATION, PARENT_LABEL
from aliquot.kubernetes.kinds.vgpu_pools import POOL_LABEL
from aliquot.kubernetes.virtual_machines.harvester.admission import vgpu_capacity as capacities
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import (
    describe_holder,
    describe_running_holder,
)
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import (
    disable_command,
    enable_command,
    moved_errors,
    name_errors,
)
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import (
    AdmissionSnapshot,
    ObjectEdit,
    parent_gpu_name,
    shorten_list,
)
from aliquot.kubernetes.virtual_machines.harvester.plugin_parameters import correct_command, requested_parameters
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: ObjectEdit[VGPUDevice], new: VGPUDevice, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Check a new object. A restored one has no status: the agent then finds out which types can be created."""
    yield from name_errors(edit.name, new.spec.node_name, new.spec.address)
    if new.spec.enabled and not new.spec.type_name:
        yield Message("vGPUTypeName cannot be empty when a vGPU is enabled")
    yield from _parameter_errors(edit.name, new)


def update(
    edit: ObjectEdit[VGPUDevice], old: VGPUDevice, new: VGPUDevice, snapshot: AdmissionSnapshot
) -> Iterator[Message]:
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
    before, after = (each.metadata.annotations.get(PARAMETERS_ANNOTATION) for each in (old, new))
    if before != after or (new.spec.enabled and new.spec != old.spec):
        yield from _parameter_errors(edit.name, new)
    if before != after and new.spec.enabled and (holder := describe_running_holder(snapshot, edit.name)):
        yield holder


def warnings(edit: ObjectEdit[VGPUDevice], snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Warn that a device that a user disables comes back, because a pool requests it."""
    old, new = edit.old, edit.new
    if old is None or new is None or not old.spec.enabled or new.spec.enabled:
        return
    if pool := new.metadata.labels.get(POOL_LABEL):
        why = f"{edit.name} belongs to VGPUPool {pool}, which enables it again: lower spec.count of the pool instead"
        yield advice(why, f"kubectl edit vgpupool {pool}")


def delete(edit: ObjectEdit[VGPUDevice], old: VGPUDevice, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    if old.spec.node_name in snapshot.nodes and (holder := describe_holder(snapshot, edit.name)):
        yield holder


def _parameter_errors(name: str, new: VGPUDevice) -> Iterator[Message]:
    """Yield an error for plugin parameters that no driver takes, or that need another type of vGPU."""
    if PARAMETERS_ANNOTATION not in new.metadata.annotations:
        return
    kinds = (table.by_name.get(new.spec.type_name) for table in tables())
    found = requested_parameters(new, next(filter(None, kinds), None))
    if isinstance(found, RuleRefusal):
        yield advice(found.message, correct_command(name))


def _enabling_errors(name: str, old: VGPUDevice, new: VGPUDevice, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    wanted, parent = new.spec.type_name, parent_gpu_name(new)
    gpu = snapshot.gpus.get(parent)
    if not wanted:
        yield _prefixed("vGPUTypeName cannot be empty: ", _available_types(old, snapshot))
        return
    if gpu is not None and not gpu.spec.enabled:
        yield _functions_off(parent)
    if old.status.configured == wanted:
        return  # the vGPU exists: created by hand, or enabled again before it was destroyed
    if wanted not in old.status.available_types:
        misfit = capacities.explain_misfit(snapshot, new) if old.status.available_types else None
        intended = _intended_type(wanted, old.status.available_types)
        hint = f" (did you mean {intended}?)" if intended else ""
        found = _prefixed(f"{wanted} is not a valid profile for {name} now{hint}: ", _available_types(old, snapshot))
        yield Message(f"{found.sentence}; {misfit.sentence}", misfit.next_step) if misfit else found
        return
    if misfit := capacities.explain_misfit(snapshot, new):
        yield misfit


def _intended_type(typed: str, available: Mapping[str, str]) -> str:
    """Return the available type that was typed by its id, its resource, or without its first word; "" if none was."""
    return next((name for name, code in available.items() if typed == code or _spelling(typed) == _spelling(name)), "")


def _spelling(name: str) -> str:
    """Return a type's name without what users leave out, or take from the name of its resource."""
    short = name.casefold().removeprefix("nvidia.com/").replace("_", " ")
    return short.removeprefix("nvidia ").removeprefix("grid ")


def why_no_type(device: VGPUDevice, snapshot: AdmissionSnapshot) -> Message:
    """Return why a disabled vGPU without types to choose from cannot be enabled."""
    parent = parent_gpu_name(device)
    gpu = snapshot.gpus.get(parent)
    return _available_types(device, snapshot) if gpu is None or gpu.spec.enabled else _functions_off(parent)


def _functions_off(parent: str) -> Message:
    return advice(f"SRIOVGPUDevice {parent} is disabled: enable it first", enable_command("sriovgpudevice", parent))


def _prefixed(head: str, message: Message) -> Message:
    return Message(head + message.sentence, message.next_step)


def _available_types(device: VGPUDevice, snapshot: AdmissionSnapshot) -> Message:
    """Return the types to choose from, or why none is available."""
    types = tuple(sorted(device.status.available_types))
    if types:
        return Message(f"available are {shorten_list(types, 20)}")
    ready = next((c for c in device.status.conditions if c.type == "Ready"), None)
    if ready is not None and ready.status != "True" and ready.message:
        reported = Message.parse(ready.message)
        return Message(f"nothing is available ({reported.sentence})", reported.next_step)
    parent = parent_gpu_name(device)
    mig = snapshot.migs.get(parent)
    if mig is not None and not any(each.instances for each in mig.status.profile_status):
        why = f"MIG is on, and {parent} has no GPU instance: set requested in its MigConfiguration and enable it"
        return advice(f"nothing is available ({why})", f"kubectl edit migconfiguration {parent}")
    enabled = [v for v in snapshot.vgpus_of(parent) if v.name != device.name and v.spec.enabled]
    names = tuple(f"{v.spec.type_name} on {v.name}" for v in sorted(enabled, key=lambda v: v.name))
    why = f"{parent} is full: {shorten_list(names)}" if names else "its driver does not answer"
    return advice(f"nothing is available ({why})", f"kubectl get vgpudevices -l {PARENT_LABEL}={parent}")
