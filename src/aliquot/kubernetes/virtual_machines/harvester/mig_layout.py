"""The requested GPU instances of a GPU: the part of a MigConfiguration to apply now, and the instances that it owns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import DesiredInstance
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner.restore_point import instance_requests
from aliquot.kubernetes.kinds.harvester import MigConfiguration
from aliquot.kubernetes.kinds.harvester_names import (
    DISABLED,
    HEAL_ANNOTATION,
    OUT_OF_SYNC,
    SYNCED,
    UNTRACKED_ANNOTATION,
)
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import PhysicalGpu
from aliquot.kubernetes.virtual_machines.harvester.reasons import HELD, PENDING, ObjectVerdict, join_names


class MigLayout(msgspec.Struct, frozen=True):
    """A decision about the GPU instances."""

    instances: tuple[DesiredInstance, ...] | None = None
    """None to leave the instances alone."""
    applies: bool = False
    """Whether a request is being applied."""
    verdict: ObjectVerdict | None = None


def requested_counts(found: MigConfiguration) -> Counter[int]:
    """Return the number of requested instances by profile id."""
    counts: Counter[int] = Counter()
    for each in found.spec.profile_spec:
        if each.requested > 0:
            counts[each.id] += each.requested
    return counts


def existing_counts(gpu: Gpu) -> Counter[int]:
    """Return the number of existing instances by profile id."""
    return Counter(i.profile_id for i in gpu.instances)


def recorded_instances(found: MigConfiguration, gpu: Gpu) -> tuple[GpuInstance, ...]:
    """Return the instances that the status records and that still exist."""
    known = {(row.id, n) for row in found.status.profile_status for n in row.instances or ()}
    return tuple(i for i in gpu.instances if (i.profile_id, str(i.id)) in known)


def tracked_instances(found: MigConfiguration, gpu: Gpu) -> tuple[GpuInstance, ...]:
    """Return the instances that the object owns once its request is met.

    These are the recorded ones, then the lowest ids, up to the requested number of each profile.
    """
    mine = {i.id for i in recorded_instances(found, gpu)}
    left = requested_counts(found)
    taken: set[int] = set()
    for each in sorted(gpu.instances, key=lambda i: (i.id not in mine, i.id)):
        if left[each.profile_id] > 0:
            left[each.profile_id] -= 1
            taken.add(each.id)
    return tuple(i for i in gpu.instances if i.id in taken)


def is_met(found: MigConfiguration, gpu: Gpu) -> bool:
    """Report whether every requested instance exists; others may exist, too."""
    return gpu.mig.enabled and not requested_counts(found) - existing_counts(gpu)


def self_heals(found: MigConfiguration) -> bool:
    """Report whether the object allows the agent to revert manual changes."""
    return found.metadata.annotations.get(HEAL_ANNOTATION) == "true"


def is_due(physical_gpu: PhysicalGpu, found: MigConfiguration) -> bool:
    """Report whether the request of an enabled object should be applied, rather than only compared with the hardware.

    It should if it never was applied, if a reboot or a change of the virtual functions destroyed its instances, if the
    request changed, or if self-heal is on.
    """
    gpu, status = physical_gpu.gpu, found.status
    if gpu is None:
        return False
    if self_heals(found) or not status.state or status.state == DISABLED:
        return True
    if not physical_gpu.function.virtual or not gpu.mig.enabled:
        return True
    if 0 < status.observed_generation < found.metadata.generation:
        return True
    if not status.applied_boot and status.state in (SYNCED, OUT_OF_SYNC):
        return not gpu.instances  # written by Harvester: if instances exist, its request counts as applied in this boot
    return status.applied_boot != physical_gpu.boot


def decide_layout(physical_gpu: PhysicalGpu, family: Family, staying: Collection[str]) -> MigLayout:
    """Decide about the GPU instances. ``staying`` are the virtual functions whose vGPUs stay."""
    found, gpu = physical_gpu.mig, physical_gpu.gpu
    if found is None or gpu is None:
        return MigLayout()
    if not found.spec.enabled:
        return _disabled_layout(physical_gpu, found, gpu, staying)
    if not is_due(physical_gpu, found):
        return MigLayout()
    unknown = [p for p in found.spec.profile_spec if p.requested > 0 and p.id not in family.by_id]
    if unknown:
        names = join_names(f"{p.name} (id {p.id})" for p in unknown)
        step = f"aliquot profiles {physical_gpu.pci}"
        return MigLayout(verdict=ObjectVerdict("UnknownProfile", f"{gpu.product} has no profile {names}", step))
    spare = _instances_to_destroy(found, gpu)
    held = [i for i in spare if i.held]
    if held:
        return MigLayout(verdict=_held_verdict(held, "it was not requested and is in use"))
    desired_instances = _kept_instances(gpu, excluded={i.id for i in spare}) + _missing_instances(found, gpu, family)
    return MigLayout(desired_instances, applies=True)


def untracked_instances(found: MigConfiguration, gpu: Gpu) -> tuple[GpuInstance, ...]:
    """Return the instances that the object does not own."""
    mine = {i.id for i in (tracked_instances(found, gpu) if found.spec.enabled else recorded_instances(found, gpu))}
    return tuple(i for i in gpu.instances if i.id not in mine)


def unowned_instances(physical_gpu: PhysicalGpu) -> tuple[str, ...]:
    """Describe the GPU instances that no object owns; none if an object allows destroying them."""
    objects = [each for each in (physical_gpu.device, physical_gpu.mig, physical_gpu.claim) if each is not None]
    if physical_gpu.gpu is None or any(
        each.metadata.annotations.get(UNTRACKED_ANNOTATION) == "delete" for each in objects
    ):
        return ()
    mine = (
        {i.id for i in recorded_instances(physical_gpu.mig, physical_gpu.gpu)}
        if physical_gpu.mig is not None
        else set()
    )
    return tuple(describe_instance(i) for i in physical_gpu.gpu.instances if i.id not in mine)


def explain_conflict(physical_gpu: PhysicalGpu, why: ObjectVerdict) -> ObjectVerdict:
    """Return why a request does not fit, with the conflicting instances that it may not destroy."""
    found, gpu = physical_gpu.mig, physical_gpu.gpu
    others = untracked_instances(found, gpu) if found is not None and gpu is not None else ()
    if found is None or not others:
        return why
    text = (
        f"{why.sentence}; not created through this object and left alone: {join_names(map(describe_instance, others))}"
    )
    step = f"kubectl annotate migconfiguration {found.name} {UNTRACKED_ANNOTATION}=delete (to destroy them)"
    return ObjectVerdict(why.reason, text, step)


def describe_instance(instance: GpuInstance) -> str:
    """Describe a GPU instance for a sentence."""
    return f"GPU instance {instance.id} (MIG {instance.profile} at {instance.placement})"


def _instances_to_destroy(found: MigConfiguration, gpu: Gpu) -> tuple[GpuInstance, ...]:
    """Return the instances that were created by hand and may be destroyed."""
    return untracked_instances(found, gpu) if found.metadata.annotations.get(UNTRACKED_ANNOTATION) == "delete" else ()


def _kept_instances(gpu: Gpu, excluded: Collection[int]) -> tuple[DesiredInstance, ...]:
    pairs = zip(gpu.instances, instance_requests(gpu), strict=True)
    return tuple(desired for each, desired in pairs if each.id not in excluded)


def _missing_instances(found: MigConfiguration, gpu: Gpu, family: Family) -> tuple[DesiredInstance, ...]:
    lacking = requested_counts(found) - existing_counts(gpu)
    return tuple(
        DesiredInstance(p.id, p.name, (p.default_compute.id,)) for p in family.profiles for _ in range(lacking[p.id])
    )


def _disabled_layout(
    physical_gpu: PhysicalGpu, found: MigConfiguration, gpu: Gpu, staying: Collection[str]
) -> MigLayout:
    """Destroy only the instances that a disabled object owns."""
    mine = recorded_instances(found, gpu)
    mine += _instances_to_destroy(found, gpu)
    if not mine:
        return MigLayout()
    children = sorted(v.name for v in physical_gpu.vgpus.values() if v.spec.enabled)
    if children:
        text = f"its GPU instances stay while vGPUs of this GPU are enabled: {join_names(children)}"
        step = f'kubectl patch vgpudevice {children[0]} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
        return MigLayout(verdict=ObjectVerdict("VgpuEnabled", text, step))
    held = [i for i in mine if i.held]
    if held and all(_is_being_freed(each, staying) for each in held):
        return MigLayout(verdict=ObjectVerdict(PENDING, "its GPU instances are destroyed after their vGPUs"))
    if held:
        return MigLayout(verdict=_held_verdict(held, "it is in use"))
    return MigLayout(_kept_instances(gpu, excluded={i.id for i in mine}))


def _is_being_freed(instance: GpuInstance, staying: Collection[str]) -> bool:
    """Report whether only vGPUs have an instance, and all of them are about to be destroyed."""
    return bool(instance.holders) and all(h.kind == "vgpu" and h.id not in staying for h in instance.holders)


def _held_verdict(held: list[GpuInstance], why: str) -> ObjectVerdict:
    holders = (
        join_names(dict.fromkeys(str(h) for i in held for h in i.holders)) or "a client that the driver does not name"
    )
    text = f"{join_names(map(describe_instance, held))} cannot be destroyed: {why} ({holders})"
    return ObjectVerdict(HELD, text, "shut that down; Aliquot then continues by itself")
