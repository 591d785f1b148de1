"""Rules for MigConfigurations."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.errors import Message
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, MigConfigurationSpec
from aliquot.kubernetes.virtual_machines.harvester.admission import mig_layout as layout
from aliquot.kubernetes.virtual_machines.harvester.admission.device_users import DeviceUsers
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import (
    disable_command,
    enable_command,
    enabled_vgpus_errors,
    moved_errors,
    name_errors,
)
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot, ObjectEdit, shorten_list
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice

APPLIED: tuple[names.MigConfigurationState, ...] = (names.SYNCED, names.OUT_OF_SYNC)


def create(edit: ObjectEdit[MigConfiguration], new: MigConfiguration, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Check a new object. A restored object has no status, so only what can never exist is rejected."""
    yield from name_errors(edit.name, new.spec.node_name, new.spec.gpu_address)
    yield from _layout_errors(new, snapshot)


def update(
    edit: ObjectEdit[MigConfiguration], old: MigConfiguration, new: MigConfiguration, snapshot: AdmissionSnapshot
) -> Iterator[Message]:
    yield from moved_errors((old.spec.node_name, old.spec.gpu_address), (new.spec.node_name, new.spec.gpu_address))
    changed = _requested_counts(old.spec) != _requested_counts(new.spec)
    if changed and old.status.state in APPLIED:
        yield _disable_first(edit.name, old)
        return
    yield from _renamed_profile_errors(old, new)
    if old.spec.enabled and not new.spec.enabled:
        yield from _claimed_errors(edit.name, snapshot)
        yield from enabled_vgpus_errors("disable", edit.name, snapshot)
    if not changed and not (new.spec.enabled and not old.spec.enabled):
        return
    if claimed := DeviceUsers(snapshot).describe_claim(edit.name):
        yield claimed
    impossible = tuple(_layout_errors(new, snapshot))
    yield from impossible
    if new.spec.enabled and not impossible and old.status.state not in APPLIED:
        family = layout.family_of(new, snapshot.functions.get(edit.name))
        if why := layout.why_not_now(new, family):
            yield advice(f"{edit.name}: {why}", f"kubectl get migconfiguration {edit.name} -o yaml (available)")


def delete(edit: ObjectEdit[MigConfiguration], old: MigConfiguration, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Check a deletion: an applied object must be disabled first, otherwise its instances would stay without an
    owner.
    """
    gpu = snapshot.gpus.get(edit.name)
    if old.spec.node_name not in snapshot.nodes or gpu is None or not gpu.spec.enabled:
        return
    children = tuple(enabled_vgpus_errors("delete", edit.name, snapshot))
    yield from children  # first, because it cannot be disabled before them
    if old.spec.enabled and not children:
        yield advice(f"{edit.name} is enabled: disable it first", disable_command("migconfiguration", edit.name))


def warnings(edit: ObjectEdit[MigConfiguration], snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Warn about an object that the agent deletes, and about a layout that would be applied without any instance."""
    old, new = edit.old, edit.new
    if new is None:
        return
    gpu = snapshot.gpus.get(edit.name)
    if old is None and gpu is not None and not gpu.spec.enabled:
        why = (
            f"the agent deletes {edit.name}: it creates one when the SRIOVGPUDevice is enabled, if the GPU supports MIG"
        )
        yield advice(why, enable_command("sriovgpudevice", edit.name))
    dropped = _missing_profiles(new)
    if dropped and dropped != (_missing_profiles(old) if old is not None else ()):
        why = f"profileSpec of {edit.name} has no row for {shorten_list(dropped, 10)}: Harvester's page cannot request "
        yield advice(f"{why}them; add the rows with requested 0", f"kubectl edit migconfiguration {edit.name}")
    if not new.spec.enabled or (old is not None and old.spec.enabled):
        return
    if not layout.requested_counts(new) and not any(each.instances for each in new.status.profile_status):
        why = f"{edit.name} requests no GPU instance, so its vGPUs have no types: set requested in profileSpec"
        yield advice(why, f"kubectl edit migconfiguration {edit.name}")


def _claimed_errors(name: str, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    """Yield an error for a vGPU in the instances that a VM has through a ResourceClaim: none of ours may be enabled."""
    children = sorted(each.name for each in snapshot.vgpus_of(name))
    if claimed := DeviceUsers(snapshot).describe_claim(*children):
        yield claimed


def _missing_profiles(mig: MigConfiguration) -> tuple[str, ...]:
    """Return the GPU's profiles without a row in the spec: a merge patch replaces the whole list."""
    known = {each.id for each in mig.spec.profile_spec}
    return tuple(each.name for each in mig.status.profile_status if each.id not in known)


def _disable_first(name: str, old: MigConfiguration) -> Message:
    why = f"{name} is {old.status.state}: it must be disabled before its profileSpec is changed"
    if old.spec.enabled:
        return advice(why, f"{disable_command('migconfiguration', name)}, then requested, then enabled")
    step = f"kubectl wait migconfiguration/{name} --for jsonpath={{.status.status}}=disabled"
    return advice(f"{why}, and that is still in progress", step)


def _requested_counts(spec: MigConfigurationSpec) -> dict[int, int]:
    """Return the requested instances by profile id, without the order and the names of the profiles."""
    return {each.id: each.requested for each in spec.profile_spec}


def _renamed_profile_errors(old: MigConfiguration, new: MigConfiguration) -> Iterator[Message]:
    """Yield errors for rows whose profile name changed: the id identifies the profile, and the new name would be
    ignored.
    """
    known = {each.id: each.name for each in old.spec.profile_spec}
    for each in new.spec.profile_spec:
        if each.name != known.get(each.id, each.name):
            yield Message(
                f"profile id {each.id} is {known[each.id]}, not {each.name}: change requested in the row you mean"
            )


def _layout_errors(mig: MigConfiguration, snapshot: AdmissionSnapshot) -> Iterator[Message]:
    known_profiles = {each.id: f"{each.name} (id {each.id})" for each in mig.status.profile_status}
    unknown = known_profiles and any(each.id not in known_profiles for each in mig.spec.profile_spec)
    for each in mig.spec.profile_spec:
        if each.requested < 0:
            yield Message(f"{each.requested} of profile {each.name} cannot be requested")
        if known_profiles and each.id not in known_profiles:
            choices = shorten_list(tuple(known_profiles.values()), 10)
            yield Message(f"this GPU has no profile {each.name} (id {each.id}): it has {choices}")
    ids = [each.id for each in mig.spec.profile_spec]
    for duplicate in sorted({i for i in ids if ids.count(i) > 1}):
        yield Message(f"profile id {duplicate} occurs {ids.count(duplicate)} times")
    if unknown:
        return  # counts of a profile that the GPU lacks say nothing more
    function = snapshot.functions.get(names.object_name(mig.spec.node_name, mig.spec.gpu_address))
    if why := layout.why_impossible(mig, layout.family_of(mig, function)):
        yield advice(f"{mig.name}: {why}", f"kubectl get migconfiguration {mig.name} -o yaml (total)")
