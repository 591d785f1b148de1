"""MigConfigurations: how the GPUs are cut, against how they should be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import board
from aliquot.core.planner.rules import allowed
from aliquot.core.planner.target_state import key
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
)
from aliquot.kubernetes.virtual_machines.harvester.conditions import FALSE, PENDING, READY, TRUE, UNKNOWN, condition
from aliquot.kubernetes.virtual_machines.harvester.conditions import SYNCED as SYNCED_CONDITION
from aliquot.kubernetes.virtual_machines.harvester.gpu_decision import Outcome
from aliquot.kubernetes.virtual_machines.harvester.mig_layout import (
    described,
    due,
    healed,
    met,
    present,
    recorded,
    requested,
    tracked,
    untracked,
)
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects, View
from aliquot.kubernetes.virtual_machines.harvester.object_draft import Draft
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import Card
from aliquot.kubernetes.virtual_machines.harvester.reasons import Verdict, advice


def draft(view: View, of: Outcome) -> Draft | None:
    """What the object of a GPU says; None for a GPU that gets none (or whose SRIOVGPUDevice, its owner, is not there
    yet). It is made once MIG mode is on; what exists then is its wish.
    """
    card = of.card
    if card.mig is not None:
        return _existing(view, of, card.mig)
    gpu, family, device = card.gpu, card.family, card.device
    if gpu is None or family is None or device is None or not device.metadata.uid:
        return None
    if not (card.enabled and of.decision.mig and gpu.mig.enabled and card.function.virtual):
        return None
    spec = _first_wish(view, card, gpu, family)
    made = MigConfiguration(spec=spec)
    status = _told(view, of, made, family)
    owner = OwnerReference(device.TYPE.kind, device.name, device.metadata.uid, device.TYPE.api_version)
    why = f"MIG mode of {card.pci} is on"
    return Draft(MigConfiguration, card.name, spec, status, owners=(owner,), why=why)


def gone(
    view: View, objects: Objects, found: Mapping[str, Card], coming: Collection[str]
) -> Iterator[MigConfiguration]:
    """Objects of this node without an SRIOVGPUDevice that is to have virtual functions, once those are off. ``coming``
    are the SRIOVGPUDevices that are only being made.
    """
    for name, each in sorted(objects.migs.items()):
        if (
            each.spec.node_name == view.node
            and name not in coming
            and _ended(found.get(name), objects.gpus.get(name), each)
        ):
            yield each


def _ended(card: Card | None, device: SRIOVGPUDevice | None, each: MigConfiguration) -> bool:
    if device is None:
        return True
    if not device.spec.enabled:
        return card is None or not card.function.virtual
    return card is not None and _skipped(device) and not _has_some(card, each)


def _skipped(device: SRIOVGPUDevice) -> bool:
    return device.metadata.annotations.get(SKIP_MIG_ANNOTATION) == "true"


def _has_some(card: Card, found: MigConfiguration) -> bool:
    """Whether a GPU that is not to be cut has something that the object answers for."""
    return card.gpu is None or found.spec.enabled or bool(recorded(found, card.gpu))


def _first_wish(view: View, card: Card, gpu: Gpu, family: Family) -> MigConfigurationSpec:
    have = present(gpu)
    rows = tuple(MigProfileSpec(p.id, f"MIG {p.name}", have[p.id]) for p in family.profiles)
    return MigConfigurationSpec(
        enabled=bool(gpu.instances), gpu_address=card.pci, node_name=view.node, profile_spec=rows
    )


def _existing(view: View, of: Outcome, found: MigConfiguration) -> Draft:
    card, family = of.card, of.card.family
    if card.gpu is None or family is None:
        why = Verdict(card.reason, card.trouble)
        if card.gpu is not None:
            text = f"{card.gpu.product} cannot be cut, or its geometry is not known"
            why = Verdict("NotCapable", advice(text, f"aliquot profiles {card.pci}"))
        status = _judged(view, found, found.status, (UNKNOWN, why), (UNKNOWN, why))
    else:
        status = _told(view, of, found, family)
    return Draft(MigConfiguration, found.name, found.spec, status)


def _told(view: View, of: Outcome, found: MigConfiguration, family: Family) -> MigConfigurationStatus:
    card, gpu = of.card, of.card.gpu
    assert gpu is not None, "without a GPU nothing can be told"
    if not found.spec.enabled:
        return _given_up(view, of, found, gpu, family)
    carried_out = met(found, gpu) or not due(card, found)
    said = differences(found, gpu, family)
    # While healing is allowed a difference is mended and told at once; else the state says that nothing was done yet.
    healing = healed(found) and found.status.applied_boot == card.boot and bool(found.status.state)
    state = (OUT_OF_SYNC if said else SYNCED) if carried_out or healing else ""
    if state == SYNCED:
        why = Verdict("Synced", "the GPU is cut as wished")
    elif state:
        why = of.decision.cut or of.failure or Verdict("OutOfSync", _put_right(found, gpu, said))
    else:
        why = of.decision.cut or of.failure or Verdict(PENDING, "its GPU instances are being made")
    status = MigConfigurationStatus(
        profile_status=_rows(family, gpu, tracked(found, gpu) if carried_out else recorded(found, gpu)),
        state=state,
        message="" if state == SYNCED else why.message,
        applied_boot=card.boot if state else "",
        differences=said,
    )
    fine = TRUE if state == SYNCED else FALSE
    return _judged(view, found, status, (fine, why), (fine, why))


def _given_up(view: View, of: Outcome, found: MigConfiguration, gpu: Gpu, family: Family) -> MigConfigurationStatus:
    """A disabled object: what it made goes, what others made is told."""
    mine, state = recorded(found, gpu), found.status.state
    said = tuple(f"{described(i)} was not made through this object" for i in untracked(found, gpu))
    ready, message = (TRUE, Verdict("Disabled", "nothing of it exists, as wished")), ""
    if mine:
        ready = FALSE, of.decision.cut or of.failure or Verdict(PENDING, "its GPU instances are being destroyed")
        message = ready[1].message
    else:
        state = DISABLED if state else ""
        if said:
            message = _left(found, said)
            ready = TRUE, Verdict("Untracked", message)
    if said and of.decision.cut is not None:
        ready, message = (FALSE, of.decision.cut), of.decision.cut.message
    status = MigConfigurationStatus(
        profile_status=_rows(family, gpu, mine), state=state, message=message, differences=said
    )
    return _judged(view, found, status, ready, ready)


def _judged(
    view: View,
    found: MigConfiguration,
    status: MigConfigurationStatus,
    ready: tuple[str, Verdict],
    synced: tuple[str, Verdict],
) -> MigConfigurationStatus:
    former = found.status.conditions
    both = (condition(former, READY, *ready, view.now), condition(former, SYNCED_CONDITION, *synced, view.now))
    return msgspec.structs.replace(status, conditions=both, observed_generation=found.metadata.generation or 1)


# -- what is, in words and numbers


def differences(found: MigConfiguration, gpu: Gpu, family: Family) -> tuple[str, ...]:
    """What differs from the wish of an enabled object, one sentence each; empty where nothing does."""
    said = [] if gpu.mig.enabled else ["MIG mode is off"]
    asked, lacking = requested(found), requested(found) - present(gpu)
    names = {p.id: f"MIG {p.name}" for p in family.profiles} | {p.id: p.name for p in found.spec.profile_spec}
    for profile_id, n in lacking.items():
        said.append(f"{n} of {asked[profile_id]} {names[profile_id]} {'is' if n == 1 else 'are'} missing")
    said += [f"{described(i)} was not requested" for i in untracked(found, gpu)]
    return tuple(said)


def _put_right(found: MigConfiguration, gpu: Gpu, said: tuple[str, ...]) -> str:
    """Disabling and enabling rebuilds what is ours alone: what others made needs a word on it first."""
    patch = f'kubectl patch migconfiguration {found.name} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
    first = f"{_let_go(found)} (to have what was not requested destroyed), then " if untracked(found, gpu) else ""
    return advice("; ".join(said) + ": nothing was touched", f"{first}{patch}, and enable it again")


def _let_go(found: MigConfiguration) -> str:
    return f"kubectl annotate migconfiguration {found.name} {UNTRACKED_ANNOTATION}=delete"


def _left(found: MigConfiguration, said: tuple[str, ...]) -> str:
    return advice("; ".join(said) + ": left alone", f"{_let_go(found)} (to have it destroyed)")


def _rows(family: Family, gpu: Gpu, mine: tuple[GpuInstance, ...]) -> tuple[MigProfileStatus, ...]:
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
    """How many more instances of a profile can be made beside those that exist, by their placements."""
    b = board(family)
    placed = [k for k in map(key, gpu.instances) if k in b.masks]
    there = Counter(p for p, _ in placed)
    for n in range(b.profiles[profile_id].max_instances - there[profile_id], 0, -1):
        counts = there + Counter({profile_id: n})
        if allowed(b, counts) and next(pack.arrangements(b, counts, placed), None) is not None:
            return n
    return 0
