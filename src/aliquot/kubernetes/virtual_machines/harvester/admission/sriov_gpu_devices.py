"""Rules for SRIOVGPUDevices."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.core.model.vgpu_scheduler import parse_scheduler
from aliquot.errors import Message
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice, skips_mig
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import DeviceUsers
from aliquot.kubernetes.virtual_machines.harvester.admission.mig_layout import supports_mig
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import (
    disable_command,
    enabled_vgpus_errors,
    moved_errors,
    name_errors,
)
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, ObjectEdit
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice


def create(edit: ObjectEdit[SRIOVGPUDevice], new: SRIOVGPUDevice, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    yield from name_errors(edit.name, new.spec.node_name, new.spec.address)
    yield from _scheduler_errors(edit.name, None, new)
    if new.spec.enabled:
        yield from _passthrough_errors(edit.name, snapshot)


def update(
    edit: ObjectEdit[SRIOVGPUDevice], old: SRIOVGPUDevice, new: SRIOVGPUDevice, snapshot: AdmissionSnapshot
) -> Iterator[Message]:
    yield from moved_errors((old.spec.node_name, old.spec.address), (new.spec.node_name, new.spec.address))
    yield from _scheduler_errors(edit.name, old, new)
    if new.spec.enabled and not old.spec.enabled:
        yield from _passthrough_errors(edit.name, snapshot)
    if old.spec.enabled and not new.spec.enabled:
        yield from _held_vgpu_errors("disable", edit.name, old, snapshot)
    elif old.spec.enabled and skips_mig(old) != skips_mig(new) and _changes_mode(edit.name, new, snapshot):
        yield from _held_vgpu_errors("change the MIG mode of", edit.name, old, snapshot)


def delete(edit: ObjectEdit[SRIOVGPUDevice], old: SRIOVGPUDevice, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    if old.spec.enabled and old.spec.node_name in snapshot.nodes:
        yield advice(f"{edit.name} is enabled: disable the GPU first", disable_command("sriovgpudevice", edit.name))


def warnings(edit: ObjectEdit[SRIOVGPUDevice], snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Warn about side effects of a change."""
    old, new = edit.old, edit.new
    if old is None or new is None:
        return
    mig = snapshot.migs.get(edit.name)
    has_instances = mig is not None and any(each.instances for each in mig.status.profile_status)
    if old.spec.enabled and not new.spec.enabled and has_instances:
        yield Message(f"disabling also destroys the GPU instances of MigConfiguration {edit.name}")
    skip = names.SKIP_MIG_ANNOTATION
    if has_instances and skips_mig(new) and not skips_mig(old):
        yield Message(f"{skip} has no effect while there are GPU instances: disable MigConfiguration {edit.name} first")


def _scheduler_errors(name: str, old: SRIOVGPUDevice | None, new: SRIOVGPUDevice) -> Iterator[Message]:
    """Yield an error for a scheduler that is wrong. One that was written before does not hold up other changes."""
    text = new.metadata.annotations.get(names.SCHEDULER_ANNOTATION)
    if text is None or (old is not None and old.metadata.annotations.get(names.SCHEDULER_ANNOTATION) == text):
        return
    try:
        parse_scheduler(text)
    except ValueError as problem:
        step = f"kubectl annotate --overwrite sriovgpudevice {name} {names.SCHEDULER_ANNOTATION}=equal-share"
        yield advice(f"annotation {names.SCHEDULER_ANNOTATION}: {problem}", step)


def _passthrough_errors(name: str, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    claim = snapshot.claims.get(name)
    if claim is not None:
        who = claim.spec.user_name or "an unnamed user"
        why = f"{name} is claimed for passthrough by {who}: delete PCIDeviceClaim {name} first"
        yield advice(why, f"kubectl delete pcideviceclaim {name}")
    if claimed := DeviceUsers(snapshot).describe_claim(name):
        yield claimed


def _changes_mode(name: str, new: SRIOVGPUDevice, snapshot: AdmissionSnapshot) -> bool:
    """Report whether the choice of the new object means another MIG mode. A MigConfiguration exists while MIG is on."""
    if name in snapshot.migs:
        return skips_mig(new)
    return not skips_mig(new) and supports_mig(snapshot.functions.get(name))


def _held_vgpu_errors(verb: str, name: str, gpu: SRIOVGPUDevice, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Yield errors for vGPUs that are enabled, or that are used although their object is disabled."""
    users = DeviceUsers(snapshot)
    for each in gpu.status.vgpu_devices:
        describe = users.describe if _may_have_vgpu(snapshot, each) else users.describe_claim
        if holder := describe(each):
            yield holder
    yield from enabled_vgpus_errors(verb, name, snapshot)


def _may_have_vgpu(snapshot: AdmissionSnapshot, name: str) -> bool:
    """Report whether a function may carry a vGPU.

    If not, no VM uses it without a ResourceClaim, even if a stopped VM names it.
    """
    device = snapshot.vgpus.get(name)
    return device is None or device.spec.enabled or bool(device.status.configured)
