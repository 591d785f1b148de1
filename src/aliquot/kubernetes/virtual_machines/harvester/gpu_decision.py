"""The decision about a GPU: its desired state, and the requests of its objects that cannot be met, with reasons.

An impossible request is omitted from the desired state: it must not block the other objects of the GPU.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot.core.model.desired import Desired, DesiredGpu, DesiredVgpu
from aliquot.core.model.vgpu_scheduler import normal_scheduler
from aliquot.core.model.vgpu_types import VgpuType
from aliquot.core.planner.plan import plan
from aliquot.kubernetes.gpu.reasons import reason_word
from aliquot.kubernetes.kinds.harvester import passes_through, skips_mig
from aliquot.kubernetes.kinds.harvester_names import SCHEDULER_ANNOTATION, SKIP_MIG_ANNOTATION, UNTRACKED_ANNOTATION
from aliquot.kubernetes.kinds.vgpu_pools import requesting_pool
from aliquot.kubernetes.virtual_machines.harvester.mig_layout import (
    MigLayout,
    decide_layout,
    explain_conflict,
    unowned_instances,
)
from aliquot.kubernetes.virtual_machines.harvester.node_view import Intent
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import PhysicalGpu
from aliquot.kubernetes.virtual_machines.harvester.reasons import HELD, ObjectVerdict, blocker_verdict, join_names
from aliquot.kubernetes.virtual_machines.harvester.vgpu_assignment import VgpuAssignment, assign_vgpus, type_by_name

replace = msgspec.structs.replace


class GpuDecision(msgspec.Struct, frozen=True):
    """The decision about a GPU. The verdicts give the reasons for requests that the intent omits."""

    intent: Intent | None = None
    """None if no object requests anything of the GPU."""
    device: ObjectVerdict | None = None
    """For the SRIOVGPUDevice."""
    layout: ObjectVerdict | None = None
    """For the MigConfiguration."""
    claim: ObjectVerdict | None = None
    """For the PCIDeviceClaim."""
    vgpus: Mapping[str, ObjectVerdict] = {}
    """For the VGPUDevices, by virtual function."""
    mig_mode: bool | None = None
    """The requested MIG mode; None to leave it as it is."""


class GpuOutcome(msgspec.Struct, frozen=True):
    """A GPU with the decision about it."""

    physical_gpu: PhysicalGpu
    decision: GpuDecision
    failure: ObjectVerdict | None = None
    """Why the decision could not be applied; None if nothing is known."""

    @property
    def refused_functions(self) -> frozenset[str]:
        """The virtual functions whose request the decision omits."""
        return frozenset(self.decision.vgpus)


def decide(physical_gpu: PhysicalGpu) -> GpuDecision:
    """Decide about a GPU."""
    claim = physical_gpu.claim if passes_through(physical_gpu.claim) else None
    if claim is None:
        return _sharing_decision(physical_gpu)
    if claim.metadata.deletion_timestamp is not None:
        return (
            _passthrough_decision(physical_gpu, False)
            if physical_gpu.passed_through
            else _sharing_decision(physical_gpu)
        )
    if physical_gpu.enabled and not physical_gpu.passed_through:
        step = f'kubectl patch sriovgpudevice {physical_gpu.name} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
        text = f"SRIOVGPUDevice {physical_gpu.name} is enabled: a GPU is either shared or passed through"
        if pool := requesting_pool(physical_gpu.vgpus.values()):
            text, step = f"{text}. VGPUPool {pool} requests vGPUs of it", f"kubectl edit vgpupool {pool}"
        return replace(_sharing_decision(physical_gpu), claim=ObjectVerdict("SriovEnabled", text, step))
    if physical_gpu.present:
        first = _sharing_decision(physical_gpu)
        why = first.device or ObjectVerdict("Waiting", "its virtual functions are disabled first")
        return replace(first, claim=why)
    untracked = () if physical_gpu.passed_through else unowned_instances(physical_gpu)
    if untracked:
        text = (
            f"passing GPU {physical_gpu.pci} through would destroy instances that were not created through objects: "
            f"{join_names(untracked)}"
        )
        step = f"kubectl annotate pcideviceclaim {physical_gpu.name} {UNTRACKED_ANNOTATION}=delete (to destroy them)"
        return GpuDecision(Intent(physical_gpu.pci), claim=ObjectVerdict("Untracked", text, step))
    found = _passthrough_decision(physical_gpu, True)
    if not physical_gpu.enabled:
        return found
    text = f"PCIDeviceClaim {physical_gpu.name} passes the whole GPU through to VMs"
    return replace(found, device=ObjectVerdict("Claimed", text, f"kubectl delete pcideviceclaim {physical_gpu.name}"))


def _passthrough_decision(physical_gpu: PhysicalGpu, on: bool) -> GpuDecision:
    """Decide to pass the GPU through, or to take it back."""
    if physical_gpu.gpu is None and not physical_gpu.without_driver:
        return GpuDecision(Intent(physical_gpu.pci, None, physical_gpu.reason, physical_gpu.error))
    desired = DesiredGpu(
        physical_gpu.pci, None, instances=None, source=f"PCIDeviceClaim {physical_gpu.name}", passthrough=on
    )
    return GpuDecision(Intent(physical_gpu.pci, desired))


def _sharing_decision(physical_gpu: PhysicalGpu) -> GpuDecision:
    """Decide to enable or disable virtual functions."""
    if physical_gpu.device is None or not (physical_gpu.enabled or physical_gpu.present):
        return GpuDecision()
    if physical_gpu.gpu is None:
        return GpuDecision(Intent(physical_gpu.pci, None, physical_gpu.reason, physical_gpu.error))
    vgpus = assign_vgpus(physical_gpu)
    if physical_gpu.enabled:
        return _enabled_decision(physical_gpu, vgpus, True)
    refusal = _functions_refusal(physical_gpu, vgpus)
    if refusal is not None:
        return replace(_enabled_decision(physical_gpu, vgpus, None), device=refusal)
    desired = DesiredGpu(physical_gpu.pci, None, instances=(), source=_source(physical_gpu), vgpus=(), functions=False)
    return GpuDecision(Intent(physical_gpu.pci, desired), vgpus=vgpus.verdicts)


def _source(physical_gpu: PhysicalGpu) -> str:
    return f"SRIOVGPUDevice {physical_gpu.name}"


def _functions_refusal(physical_gpu: PhysicalGpu, vgpus: VgpuAssignment) -> ObjectVerdict | None:
    """Return why virtual functions cannot be disabled."""
    enabled = sorted(v.name for v in physical_gpu.vgpus.values() if v.spec.enabled)
    if enabled:
        text = f"its virtual functions stay enabled while VGPUDevices are enabled: {join_names(enabled)}"
        step = f'kubectl patch vgpudevice {enabled[0]} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
        return ObjectVerdict("VgpuEnabled", text, step)
    held = [f for f, why in vgpus.verdicts.items() if why.reason == HELD and f in vgpus.keep]
    if held:
        return vgpus.verdicts[held[0]]
    if vgpus.keep:
        names = join_names(f"{w.type} on {f}" for f, w in vgpus.keep.items())
        text = f"its virtual functions carry vGPUs that were not created through their objects: {names}"
        return ObjectVerdict("Untracked", text, f"kubectl describe vgpudevices -l nodename={physical_gpu.node}")
    untracked = unowned_instances(physical_gpu)
    if untracked:
        text = (
            "disabling its virtual functions would destroy instances that were not created through objects: "
            f"{join_names(untracked)}"
        )
        step = f"kubectl annotate sriovgpudevice {physical_gpu.name} {UNTRACKED_ANNOTATION}=delete (to destroy them)"
        return ObjectVerdict("Untracked", text, step)
    return None


def _enabled_decision(physical_gpu: PhysicalGpu, vgpus: VgpuAssignment, functions: bool | None) -> GpuDecision:
    mig_mode, note = _wanted_mig_mode(physical_gpu, vgpus) if functions else (_current_mig_mode(physical_gpu), None)
    family = physical_gpu.family
    chosen = (
        decide_layout(physical_gpu, family, vgpus.keep)
        if mig_mode and family is not None
        else _skipped_layout(physical_gpu, mig_mode)
    )
    on, kept_vgpus = True if functions else None, tuple(vgpus.keep.values())
    if physical_gpu.slots:
        on = None  # there is nothing to enable: the driver creates mdevs of the GPU itself
    base = DesiredGpu(
        physical_gpu.pci, mig_mode, None, _source(physical_gpu), kept_vgpus, on, restoring=vgpus.restoring
    )
    base, refused_scheduler = _with_scheduler(physical_gpu, base) if functions else (base, None)
    note = note or refused_scheduler
    full = replace(base, instances=chosen.instances, vgpus=vgpus.all_vgpus)
    applies = (physical_gpu.name,) if chosen.applies else ()
    if not _first_blocker(physical_gpu, full) or _first_blocker(physical_gpu, base):
        # If nothing at all is possible, the attempt at the whole desired state gives the reason.
        return GpuDecision(
            Intent(physical_gpu.pci, full, applies=applies),
            note,
            chosen.verdict,
            vgpus=vgpus.verdicts,
            mig_mode=mig_mode,
        )
    why = chosen.verdict
    desired = replace(base, instances=chosen.instances)
    blocked = _first_blocker(physical_gpu, desired) if chosen.instances is not None else None
    if blocked is not None:
        desired, why, applies = base, explain_conflict(physical_gpu, blocked), ()
    desired, refused = _fit_vgpus(physical_gpu, desired, vgpus.create)
    verdicts = {**vgpus.verdicts, **refused}
    return GpuDecision(Intent(physical_gpu.pci, desired, applies=applies), note, why, vgpus=verdicts, mig_mode=mig_mode)


def _with_scheduler(physical_gpu: PhysicalGpu, base: DesiredGpu) -> tuple[DesiredGpu, ObjectVerdict | None]:
    """Add the scheduler of the annotation to a desired state. If it is wrong or impossible now, return why: it must not
    block the rest.
    """
    text = physical_gpu.device.metadata.annotations.get(SCHEDULER_ANNOTATION) if physical_gpu.device else None
    if text is None:
        return base, None
    try:
        wanted = replace(base, scheduler=normal_scheduler(text))
    except ValueError as problem:
        step = f"kubectl annotate --overwrite sriovgpudevice {physical_gpu.name} {SCHEDULER_ANNOTATION}=best-effort"
        return base, ObjectVerdict(reason_word("SCHEDULER"), f"annotation {SCHEDULER_ANNOTATION}: {problem}", step)
    why = _first_blocker(physical_gpu, wanted)
    if why is None or _first_blocker(physical_gpu, base):
        return wanted, None
    if why.reason == HELD:  # the GPU instances that VMs use wait, and the others need not
        partial = replace(wanted, spares_held=True)
        return (base if _first_blocker(physical_gpu, partial) else partial), why
    return base, replace(why, next_step=f"kubectl annotate sriovgpudevice {physical_gpu.name} {SCHEDULER_ANNOTATION}-")


def _skipped_layout(physical_gpu: PhysicalGpu, mig_mode: bool | None) -> MigLayout:
    """Return the layout of a GPU that should not be partitioned. The verdict names a request that is skipped."""
    if mig_mode is not False or physical_gpu.mig is None or not physical_gpu.mig.spec.enabled:
        return MigLayout()
    text = f"SRIOVGPUDevice {physical_gpu.name} skips MIG: none of its requested GPU instances is created"
    return MigLayout(
        verdict=ObjectVerdict(
            "Skipped", text, f"kubectl annotate sriovgpudevice {physical_gpu.name} {SKIP_MIG_ANNOTATION}-"
        )
    )


def _current_mig_mode(physical_gpu: PhysicalGpu) -> bool | None:
    gpu = physical_gpu.gpu
    return gpu.mig.enabled if gpu is not None and gpu.mig.capable else None


def _wanted_mig_mode(physical_gpu: PhysicalGpu, vgpus: VgpuAssignment) -> tuple[bool | None, ObjectVerdict | None]:
    """Return the MIG mode that the GPU should have, with a note on a conflict.

    It is always set if the GPU supports MIG: otherwise the first vGPU that is requested would determine it.
    """
    gpu, current = physical_gpu.gpu, _current_mig_mode(physical_gpu)
    if gpu is None or current is None or physical_gpu.family is None:
        return None, None
    if physical_gpu.device is not None and skips_mig(physical_gpu.device):
        if not gpu.instances:
            return False, None
        text = f"MIG should be skipped, but the GPU has {len(gpu.instances)} GPU instances, which are left alone"
        made = physical_gpu.mig is not None and physical_gpu.mig.spec.enabled
        off = f'kubectl patch migconfiguration {physical_gpu.name} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
        return current, ObjectVerdict("HasInstances", text, off if made else "aliquot show")
    if any(_is_time_sliced(physical_gpu, desired) for desired in vgpus.keep.values()):
        return current, None
    time_sliced = [_is_time_sliced(physical_gpu, desired) for desired in vgpus.create.values()]
    if not current and physical_gpu.mig is None and time_sliced and all(time_sliced):
        return False, None
    return True, None


def _is_time_sliced(physical_gpu: PhysicalGpu, desired: DesiredVgpu) -> bool:
    """Report whether a vGPU is time-sliced, which requires disabled MIG mode."""
    kind = type_by_name(physical_gpu.table, desired.type)
    return isinstance(kind, VgpuType) and not kind.mig_backed


def _first_blocker(physical_gpu: PhysicalGpu, desired: DesiredGpu) -> ObjectVerdict | None:
    assert physical_gpu.inventory is not None, "a desired state requires an inventory"
    found = plan(physical_gpu.inventory, Desired((desired,)))
    return blocker_verdict(found.blockers[0]) if found.blockers else None


def _fit_vgpus(
    physical_gpu: PhysicalGpu, desired: DesiredGpu, to_create: Mapping[str, DesiredVgpu]
) -> tuple[DesiredGpu, dict[str, ObjectVerdict]]:
    """Add vGPUs to the desired state, in the order of the virtual functions, as long as they fit."""
    refused: dict[str, ObjectVerdict] = {}
    for address, each in to_create.items():
        more = replace(desired, vgpus=(*(desired.vgpus or ()), each))
        why = _first_blocker(physical_gpu, more)
        if why is None:
            desired = more
        else:
            refused[address] = why
    return desired, refused
