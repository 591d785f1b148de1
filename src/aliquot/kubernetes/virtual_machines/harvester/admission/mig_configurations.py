"""Rules for MigConfigurations."""

from __future__ import annotations

from collections.abc import Iterator

from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, MigConfigurationSpec
from aliquot.kubernetes.virtual_machines.harvester.admission import mig_layout as layout
from aliquot.kubernetes.virtual_machines.harvester.admission.rules import disabling, identity, in_the_way, unmoved
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import Edit, World, listed
from aliquot.kubernetes.virtual_machines.harvester.reasons import advice

APPLIED = (names.SYNCED, names.OUT_OF_SYNC)


def create(edit: Edit[MigConfiguration], new: MigConfiguration, world: World) -> Iterator[str]:
    """A restored one comes without status, so that only what can never be is refused."""
    yield from identity(edit.name, new.spec.node_name, new.spec.gpu_address)
    yield from _possible(new, world)


def update(edit: Edit[MigConfiguration], old: MigConfiguration, new: MigConfiguration, world: World) -> Iterator[str]:
    yield from unmoved((old.spec.node_name, old.spec.gpu_address), (new.spec.node_name, new.spec.gpu_address))
    changed = _wish(old.spec) != _wish(new.spec)
    if changed and old.status.state in APPLIED:
        yield _first_disabled(edit.name, old)
        return
    yield from _renamed(old, new)
    if old.spec.enabled and not new.spec.enabled:
        yield from _unused(edit.name, "disable", world)
    if not changed and not (new.spec.enabled and not old.spec.enabled):
        return
    impossible = tuple(_possible(new, world))
    yield from impossible
    if new.spec.enabled and not impossible and old.status.state not in APPLIED:
        family = layout.family_of(new, world.functions.get(edit.name))
        if why := layout.now(new, family):
            yield advice(f"{edit.name}: {why}", f"kubectl get migconfiguration {edit.name} -o yaml (available)")


def delete(edit: Edit[MigConfiguration], old: MigConfiguration, world: World) -> Iterator[str]:
    """What is applied is taken back by disabling; deleting it would leave instances that nobody tracks."""
    gpu = world.gpus.get(edit.name)
    if old.spec.node_name not in world.nodes or gpu is None or not gpu.spec.enabled:
        return
    if old.spec.enabled:
        yield advice(f"{edit.name} is enabled: disable it first", disabling("migconfiguration", edit.name))
    yield from _unused(edit.name, "delete", world)


def _first_disabled(name: str, old: MigConfiguration) -> str:
    why = f"{name} is {old.status.state}: it must be disabled before its profileSpec is changed"
    if old.spec.enabled:
        return advice(why, f"{disabling('migconfiguration', name)}, then requested, then enabled")
    step = f"kubectl wait migconfiguration/{name} --for jsonpath={{.status.status}}=disabled"
    return advice(f"{why}, and that is still going on", step)


def _wish(spec: MigConfigurationSpec) -> dict[int, int]:
    """The order of the profiles and how they are named is no wish."""
    return {each.id: each.requested for each in spec.profile_spec}


def _renamed(old: MigConfiguration, new: MigConfiguration) -> Iterator[str]:
    """The id says which profile a row is about: another name beside it would be a wish that nobody reads."""
    known = {each.id: each.name for each in old.spec.profile_spec}
    for each in new.spec.profile_spec:
        if each.name != known.get(each.id, each.name):
            yield f"profile id {each.id} is {known[each.id]}, not {each.name}: change requested in the row you mean"


def _possible(mig: MigConfiguration, world: World) -> Iterator[str]:
    told = {each.id: each.name for each in mig.status.profile_status}
    for each in mig.spec.profile_spec:
        if each.requested < 0:
            yield f"{each.requested} of profile {each.name} cannot be requested"
        if told and each.id not in told:
            yield f"profile {each.name} (id {each.id}) is none of this GPU's: {listed(tuple(told.values()), 10)}"
    ids = [each.id for each in mig.spec.profile_spec]
    for twice in sorted({i for i in ids if ids.count(i) > 1}):
        yield f"profile id {twice} is there {ids.count(twice)} times"
    function = world.functions.get(names.object_name(mig.spec.node_name, mig.spec.gpu_address))
    if why := layout.ever(mig, layout.family_of(mig, function)):
        yield advice(f"{mig.name}: {why}", f"kubectl get migconfiguration {mig.name} -o yaml (total)")


def _unused(name: str, verb: str, world: World) -> Iterator[str]:
    if children := world.enabled_children(name):
        yield in_the_way(verb, name, children)
