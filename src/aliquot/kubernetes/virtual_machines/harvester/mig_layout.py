"""How one GPU should be cut: what of a MigConfiguration is to be carried out now, and which instances are its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import InstanceWish
from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.planner.restore_point import instance_wishes
from aliquot.kubernetes.kinds.harvester import MigConfiguration
from aliquot.kubernetes.kinds.harvester_names import (
    DISABLED,
    HEAL_ANNOTATION,
    OUT_OF_SYNC,
    SYNCED,
    UNTRACKED_ANNOTATION,
)
from aliquot.kubernetes.virtual_machines.harvester.physical_gpus import Card
from aliquot.kubernetes.virtual_machines.harvester.reasons import Verdict, advice, listed


class Cut(msgspec.Struct, frozen=True):
    """``instances`` None leaves them alone. ``applies``: a wish is being carried out."""

    instances: tuple[InstanceWish, ...] | None = None
    applies: bool = False
    verdict: Verdict | None = None


def requested(found: MigConfiguration) -> Counter[int]:
    """Profile id -> number of instances that are asked."""
    counts: Counter[int] = Counter()
    for each in found.spec.profile_spec:
        if each.requested > 0:
            counts[each.id] += each.requested
    return counts


def present(gpu: Gpu) -> Counter[int]:
    """Profile id -> number of instances that exist."""
    return Counter(i.profile_id for i in gpu.instances)


def recorded(found: MigConfiguration, gpu: Gpu) -> tuple[GpuInstance, ...]:
    """The instances that the status has on record and that exist still, by id."""
    known = {(row.id, n) for row in found.status.profile_status for n in row.instances or ()}
    return tuple(i for i in gpu.instances if (i.profile_id, str(i.id)) in known)


def tracked(found: MigConfiguration, gpu: Gpu) -> tuple[GpuInstance, ...]:
    """The instances that are this object's once its wish is met: those on record, then the lowest ids, up to what is
    asked of each profile.
    """
    mine = {i.id for i in recorded(found, gpu)}
    left = requested(found)
    taken: set[int] = set()
    for each in sorted(gpu.instances, key=lambda i: (i.id not in mine, i.id)):
        if left[each.profile_id] > 0:
            left[each.profile_id] -= 1
            taken.add(each.id)
    return tuple(i for i in gpu.instances if i.id in taken)


def met(found: MigConfiguration, gpu: Gpu) -> bool:
    """Whether everything that is asked exists; more may."""
    return gpu.mig.enabled and not requested(found) - present(gpu)


def healed(found: MigConfiguration) -> bool:
    """Whether what somebody changed by hand is put right unasked."""
    return found.metadata.annotations.get(HEAL_ANNOTATION) == "true"


def due(card: Card, found: MigConfiguration) -> bool:
    """Whether the wish of an enabled object is to be carried out, as opposed to being judged: it never was, a reboot or
    switched virtual functions took its instances, the wish itself is another, or healing is allowed.
    """
    gpu, status = card.gpu, found.status
    if gpu is None:
        return False
    if healed(found) or status.state in ("", DISABLED):
        return True
    if not card.function.virtual or not gpu.mig.enabled:
        return True
    if 0 < status.observed_generation < found.metadata.generation:
        return True
    if not status.applied_boot and status.state in (SYNCED, OUT_OF_SYNC):
        return (
            not gpu.instances
        )  # the original's object: what it says was carried out in this boot, if anything is left
    return status.applied_boot != card.boot


def cut(card: Card, family: Family) -> Cut:
    """What should happen to the GPU instances."""
    found, gpu = card.mig, card.gpu
    if found is None or gpu is None:
        return Cut()
    if not found.spec.enabled:
        return _given_up(card, found, gpu)
    if not due(card, found):
        return Cut()
    unknown = [p for p in found.spec.profile_spec if p.requested > 0 and p.id not in family.by_id]
    if unknown:
        names = listed(f"{p.name} (id {p.id})" for p in unknown)
        step = f"aliquot profiles {card.pci}"
        return Cut(verdict=Verdict("UnknownProfile", advice(f"{gpu.product} has no profile {names}", step)))
    spare = _surplus(found, gpu)
    held = [i for i in spare if i.held]
    if held:
        return Cut(verdict=_held(held, "it was not requested and is in use"))
    wishes = _pinned(gpu, without={i.id for i in spare}) + _missing(found, gpu, family)
    return Cut(wishes, applies=True)


def untracked(found: MigConfiguration, gpu: Gpu) -> tuple[GpuInstance, ...]:
    """The instances that are not this object's."""
    mine = {i.id for i in (tracked(found, gpu) if found.spec.enabled else recorded(found, gpu))}
    return tuple(i for i in gpu.instances if i.id not in mine)


def strangers(card: Card) -> tuple[str, ...]:
    """The GPU instances that no object answers for, in words; none where an object says that they may go."""
    objects = [each for each in (card.device, card.mig, card.claim) if each is not None]
    if card.gpu is None or any(each.metadata.annotations.get(UNTRACKED_ANNOTATION) == "delete" for each in objects):
        return ()
    mine = {i.id for i in recorded(card.mig, card.gpu)} if card.mig is not None else set()
    return tuple(described(i) for i in card.gpu.instances if i.id not in mine)


def beside(card: Card, why: Verdict) -> Verdict:
    """Why a wish does not fit, with the instances in its way that it may not destroy."""
    found, gpu = card.mig, card.gpu
    others = untracked(found, gpu) if found is not None and gpu is not None else ()
    if found is None or not others:
        return why
    message = why.message.partition(" | next: ")[0]
    text = f"{message}; not made through this object, and left alone: {listed(map(described, others))}"
    step = f"kubectl annotate migconfiguration {found.name} {UNTRACKED_ANNOTATION}=delete (to have them destroyed)"
    return Verdict(why.reason, advice(text, step))


def described(instance: GpuInstance) -> str:
    """A GPU instance in a sentence."""
    return f"GPU instance {instance.id} (MIG {instance.profile} at {instance.placement})"


def _surplus(found: MigConfiguration, gpu: Gpu) -> tuple[GpuInstance, ...]:
    """What was made by hand and may go."""
    return untracked(found, gpu) if found.metadata.annotations.get(UNTRACKED_ANNOTATION) == "delete" else ()


def _pinned(gpu: Gpu, without: Collection[int]) -> tuple[InstanceWish, ...]:
    wishes = zip(gpu.instances, instance_wishes(gpu), strict=True)
    return tuple(wish for each, wish in wishes if each.id not in without)


def _missing(found: MigConfiguration, gpu: Gpu, family: Family) -> tuple[InstanceWish, ...]:
    lacking = requested(found) - present(gpu)
    return tuple(
        InstanceWish(p.id, p.name, (p.default_compute.id,)) for p in family.profiles for _ in range(lacking[p.id])
    )


def _given_up(card: Card, found: MigConfiguration, gpu: Gpu) -> Cut:
    """A disabled object gives back what it made, and nothing else."""
    mine = recorded(found, gpu)
    mine += _surplus(found, gpu)
    if not mine:
        return Cut()
    children = sorted(v.name for v in card.vgpus.values() if v.spec.enabled)
    if children:
        text = f"its GPU instances stay while vGPUs of this GPU are enabled: {listed(children)}"
        step = f'kubectl patch vgpudevice {children[0]} --type merge -p \'{{"spec":{{"enabled":false}}}}\''
        return Cut(verdict=Verdict("VgpuEnabled", advice(text, step)))
    held = [i for i in mine if i.held]
    if held:
        return Cut(verdict=_held(held, "it is in use"))
    return Cut(_pinned(gpu, without={i.id for i in mine}))


def _held(held: list[GpuInstance], why: str) -> Verdict:
    holders = listed(dict.fromkeys(str(h) for i in held for h in i.holders)) or "a client that the driver does not name"
    text = f"{listed(map(described, held))} cannot be destroyed: {why} ({holders})"
    return Verdict("Held", advice(text, "shut that down; it then goes on by itself"))
