"""MigConfigurations: the actual geometry of the GPUs against the requested one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import compiled_table
from aliquot.core.planner.rules import allowed
from aliquot.core.planner.target_state import placed_key
from aliquot.kubernetes.client.object_base import OwnerReference
from aliquot.kubernetes.kinds.harvester import (
    MigConfiguration,
    MigConfigurationSpec,
    MigConfigurationStatus,
    MigProfileSpec,
    MigProfileStatus,
    SRIOVGPUDevice,
)
from aliquot.kubernetes.kinds.harvester_names import (
    DISABLED,
    OUT_OF_SYNC,
    SKIP_MIG_ANNOTATION,
    SYNCED,
    UNTRACKED_ANNOTATION,
    MigConfigurationState,
)
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionState, condition
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import GpuOutcome
from aliquot.kubernetes.virtual_machines.harvester.mig_layout import (
    describe_instance,
    existing_counts,
    is_due,
    is_met,
    recorded_instances,
    requested_counts,
    self_heals,
    tracked_instances,
    untracked_instances,
)
from aliquot.kubernetes.virtual_machines.harvester.node_view import NodeView, Objects
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import PhysicalGpu
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING, ObjectVerdict


def draft(view: NodeView, outcome: GpuOutcome) -> Draft | None:
    """Build the draft of a GPU's MigConfiguration; None for a GPU without one.

    The object is created once MIG mode is on and its owner, the SRIOVGPUDevice, exists. It requests the instances that
    exist then.
    """
    physical_gpu = outcome.physical_gpu
    if physical_gpu.mig is not None:
        return _existing_draft(view, outcome, physical_gpu.mig)
    gpu, family, device = physical_gpu.gpu, physical_gpu.family, physical_gpu.device
    if gpu is None or family is None or device is None or not device.metadata.uid:
        return None
    if not (physical_gpu.enabled and outcome.decision.mig_mode and gpu.mig.enabled and physical_gpu.function.virtual):
        return None
    spec = _initial_spec(view, physical_gpu, gpu, family)
    made = MigConfiguration(spec=spec)
    status = _enabled_status(view, outcome, made, family)
    owner = OwnerReference(device.TYPE.kind, device.name, device.metadata.uid, device.TYPE.api_version)
    why = f"MIG mode of {physical_gpu.pci} is on"
    return Draft(MigConfiguration, physical_gpu.name, spec, status, owners=(owner,), why=why)


def objects_to_delete(
    view: NodeView, objects: Objects, found: Mapping[str, PhysicalGpu], being_created: Collection[str]
) -> Iterator[MigConfiguration]:
    """Yield this node's objects without an SRIOVGPUDevice that requests virtual functions, once those are disabled.

    ``being_created`` are the SRIOVGPUDevices that this round creates.
    """
    for name, each in sorted(objects.migs.items()):
        if (
            each.spec.node_name == view.node
            and name not in being_created
            and _is_stale(found.get(name), objects.gpus.get(name), each)
        ):
            yield each


def _is_stale(physical_gpu: PhysicalGpu | None, device: SRIOVGPUDevice | None, each: MigConfiguration) -> bool:
    if device is None:
        return True
    if not device.spec.enabled:
        return physical_gpu is None or not physical_gpu.function.virtual
    return physical_gpu is not None and _skips_mig(device) and not _has_tracked_instances(physical_gpu, each)


def _skips_mig(device: SRIOVGPUDevice) -> bool:
    return device.metadata.annotations.get(SKIP_MIG_ANNOTATION) == "true"


def _has_tracked_instances(physical_gpu: PhysicalGpu, found: MigConfiguration) -> bool:
    """Report whether a GPU that should not be partitioned has instances that the object owns."""
    return physical_gpu.gpu is None or found.spec.enabled or bool(recorded_instances(found, physical_gpu.gpu))


def _initial_spec(view: NodeView, physical_gpu: PhysicalGpu, gpu: Gpu, family: Family) -> MigConfigurationSpec:
    existing = existing_counts(gpu)
    rows = tuple(MigProfileSpec(p.id, f"MIG {p.name}", existing[p.id]) for p in family.profiles)
    return MigConfigurationSpec(
        enabled=bool(gpu.instances), gpu_address=physical_gpu.pci, node_name=view.node, profile_spec=rows
    )


def _existing_draft(view: NodeView, outcome: GpuOutcome, found: MigConfiguration) -> Draft:
    physical_gpu, family = outcome.physical_gpu, outcome.physical_gpu.family
    if physical_gpu.gpu is None or family is None:
        why = ObjectVerdict(physical_gpu.reason, physical_gpu.error)
        if physical_gpu.gpu is not None:
            text = f"{physical_gpu.gpu.product} does not support MIG, or its geometry is not known"
            why = ObjectVerdict("NotCapable", text, f"aliquot profiles {physical_gpu.pci}")
        status = _with_conditions(view, found, found.status, ("Unknown", why), ("Unknown", why))
    else:
        status = _enabled_status(view, outcome, found, family)
    return Draft(MigConfiguration, found.name, found.spec, status)


def _enabled_status(
    view: NodeView, outcome: GpuOutcome, found: MigConfiguration, family: Family
) -> MigConfigurationStatus:
    physical_gpu, gpu = outcome.physical_gpu, outcome.physical_gpu.gpu
    assert gpu is not None, "the status describes a readable GPU"
    if not found.spec.enabled:
        return _disabled_status(view, outcome, found, gpu, family)
    applied = is_met(found, gpu) or not is_due(physical_gpu, found)
    found_differences = differences(found, gpu, family)
    # With self-heal, the agent repairs and reports drift immediately; otherwise an empty state means "not applied yet".
    healing = self_heals(found) and found.status.applied_boot == physical_gpu.boot and bool(found.status.state)
    state: MigConfigurationState | Literal[""] = (
        (OUT_OF_SYNC if found_differences else SYNCED) if applied or healing else ""
    )
    if state == SYNCED:
        why = ObjectVerdict("Synced", "the GPU instances match the request")
    elif state:
        why = outcome.decision.layout or outcome.failure or _out_of_sync(found, gpu, found_differences)
    else:
        why = outcome.decision.layout or outcome.failure or ObjectVerdict(PENDING, "GPU instances are being created")
    status = MigConfigurationStatus(
        profile_status=_profile_rows(
            family, gpu, tracked_instances(found, gpu) if applied else recorded_instances(found, gpu)
        ),
        state=state,
        message="" if state == SYNCED else why.message,
        applied_boot=physical_gpu.boot if state else "",
        differences=found_differences,
    )
    both: ConditionState = "True" if state == SYNCED else "False", why
    return _with_conditions(view, found, status, both, both)


def _disabled_status(
    view: NodeView, outcome: GpuOutcome, found: MigConfiguration, gpu: Gpu, family: Family
) -> MigConfigurationStatus:
    """Return the status of a disabled object: its own instances are destroyed, those of others are reported."""
    mine, state = recorded_instances(found, gpu), found.status.state or ""
    sentences = tuple(
        f"{describe_instance(i)} was not created through this object" for i in untracked_instances(found, gpu)
    )
    ready: ConditionState = "True", ObjectVerdict("Disabled", "it has no GPU instances, as requested")
    message = ""
    if mine:
        ready = (
            "False",
            outcome.decision.layout
            or outcome.failure
            or ObjectVerdict(PENDING, "its GPU instances are being destroyed"),
        )
        message = ready[1].message
    else:
        state = DISABLED if state else ""
        if sentences:
            ready = "True", _untracked(found, sentences)
            message = ready[1].message
    if sentences and outcome.decision.layout is not None:
        ready, message = ("False", outcome.decision.layout), outcome.decision.layout.message
    status = MigConfigurationStatus(
        profile_status=_profile_rows(family, gpu, mine), state=state, message=message, differences=sentences
    )
    return _with_conditions(view, found, status, ready, ready)


def _with_conditions(
    view: NodeView,
    found: MigConfiguration,
    status: MigConfigurationStatus,
    ready: ConditionState,
    synced: ConditionState,
) -> MigConfigurationStatus:
    previous = found.status.conditions
    both = (condition(previous, "Ready", *ready, view.now), condition(previous, "Synced", *synced, view.now))
    return msgspec.structs.replace(status, conditions=both, observed_generation=found.metadata.generation or 1)


# -- drift and counts


def differences(found: MigConfiguration, gpu: Gpu, family: Family) -> tuple[str, ...]:
    """Return the drift of an enabled object, one sentence for each difference."""
    sentences = [] if gpu.mig.enabled else ["MIG mode is off"]
    counts, lacking = requested_counts(found), requested_counts(found) - existing_counts(gpu)
    names = {p.id: f"MIG {p.name}" for p in family.profiles} | {p.id: p.name for p in found.spec.profile_spec}
    for profile_id, n in lacking.items():
        sentences.append(f"{n} of {counts[profile_id]} {names[profile_id]} {'is' if n == 1 else 'are'} missing")
    sentences += [f"{describe_instance(i)} was not requested" for i in untracked_instances(found, gpu)]
    return tuple(sentences)


def _out_of_sync(found: MigConfiguration, gpu: Gpu, sentences: tuple[str, ...]) -> ObjectVerdict:
    """Return the verdict on drift, with the commands that resolve it.

    Disabling and enabling the object creates only its own instances again. Instances of others need the annotation
    first.
    """
    patch = f'kubectl patch migconfiguration {found.name} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
    first = (
        f"{_destroy_command(found)} (to destroy what was not requested), then "
        if untracked_instances(found, gpu)
        else ""
    )
    text = "; ".join(sentences) + ": nothing was changed"
    return ObjectVerdict("OutOfSync", text, f"{first}{patch}, and enable it again")


def _destroy_command(found: MigConfiguration) -> str:
    return f"kubectl annotate migconfiguration {found.name} {UNTRACKED_ANNOTATION}=delete"


def _untracked(found: MigConfiguration, sentences: tuple[str, ...]) -> ObjectVerdict:
    text = "; ".join(sentences) + ": left alone"
    return ObjectVerdict("Untracked", text, f"{_destroy_command(found)} (to destroy them)")


def _profile_rows(family: Family, gpu: Gpu, mine: tuple[GpuInstance, ...]) -> tuple[MigProfileStatus, ...]:
    ids = {p.id: tuple(str(n) for n in sorted(i.id for i in mine if i.profile_id == p.id)) for p in family.profiles}
    return tuple(
        MigProfileStatus(
            available=creatable(family, gpu, p.id),
            id=p.id,
            name=f"MIG {p.name}",
            total=p.max_instances,
            instances=ids[p.id] or msgspec.UNSET,
        )
        for p in family.profiles
    )


def creatable(family: Family, gpu: Gpu, profile_id: int) -> int:
    """Return how many more instances of a profile can be created beside the existing ones, by their placements."""
    table = compiled_table(family)
    placed = [k for k in map(placed_key, gpu.instances) if k in table.masks]
    present_counts = Counter(p for p, _ in placed)
    for n in range(table.profiles[profile_id].max_instances - present_counts[profile_id], 0, -1):
        counts = present_counts + Counter({profile_id: n})
        if allowed(table, counts) and next(pack.arrangements(table, counts, placed), None) is not None:
            return n
    return 0
