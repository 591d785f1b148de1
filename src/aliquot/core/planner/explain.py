"""The reason why a profile does not fit on a GPU now, and the cheapest plan that would make it fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from typing import Literal

import msgspec

from aliquot.core.model.catalog import Profile
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance, RuleCode
from aliquot.core.model.inventory import API_VERSION, Gpu, GpuInstance, Holder, Inventory
from aliquot.core.model.placement import slices
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.model.structured_text import StructuredText
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import PlacementTable, compiled_table
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.core.planner.rules import refusals
from aliquot.core.planner.target_state import placed_key
from aliquot.foundation.decimals import decimal


class GpuAnswer(msgspec.Struct, frozen=True):
    """The answer for one GPU."""

    gpu: str
    product: str
    fits: bool
    sentence: str
    rule: RuleCode | Literal[""] = ""
    slices: tuple[int, ...] = ()
    holders: tuple[Holder, ...] = ()
    plan: Plan | None = None
    """The cheapest plan that adds an instance of the profile. It destroys nothing if the profile fits already."""
    next_step: str | None = msgspec.field(name="next", default=None)


class Explanation(msgspec.Struct, frozen=True):
    """The answers for all GPUs of the question."""

    profile: str
    answers: tuple[GpuAnswer, ...]
    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str = "Explanation"


def explain(inventory: Inventory, profile: str, pci: str | None = None) -> Explanation:
    """Return answers for one profile (name or ``id:N``) on every MIG-capable GPU, or on one GPU."""
    gpus = [g for g in inventory.gpus if pci in (None, g.pci)]
    return Explanation(profile, tuple(_answer(inventory, g, profile) for g in gpus if g.mig.capable or pci))


def best_answer(answers: Sequence[GpuAnswer]) -> GpuAnswer:
    """Return the answer of the GPU with the least cost: the profile fits, or few instances are destroyed and no GPU is
    reset.
    """
    return min(answers, key=_cost)


def _cost(answer: GpuAnswer) -> tuple[bool, bool, int, int]:
    plan = answer.plan
    if plan is None or plan.blocked:
        return not answer.fits, True, 0, 0
    return not answer.fits, False, plan.destroyed, len(plan.resets) + len(plan.reboots)


def _answer(inventory: Inventory, gpu: Gpu, name: str) -> GpuAnswer:
    def negative(rule: RuleCode, sentence: str, next_step: str | None = None) -> GpuAnswer:
        return GpuAnswer(gpu.pci, gpu.product, False, sentence, rule, next_step=next_step)

    if gpu.lost or not gpu.mig.capable:
        why = "has fallen off the bus" if gpu.lost else "does not support MIG"
        return negative("GPU_LOST" if gpu.lost else "NOT_CAPABLE", f"{gpu.product} {why}", "aliquot show")
    table = compiled_table(inventory.family(gpu))
    wanted = _profile_id(table, name)
    if wanted is None:
        names = ", ".join(p.name for p in table.family.profiles)
        return negative(
            "UNKNOWN_PROFILE", f"{gpu.product} has no profile {name} (it has {names})", f"aliquot profiles {gpu.pci}"
        )
    placed = [k for k in map(placed_key, gpu.instances) if k in table.masks]
    starts = pack.legal_starts(table, placed, wanted)
    shown = table.profiles[wanted].name
    if not gpu.mig.enabled:
        sentence = f"{shown} does not fit yet: MIG mode is {gpu.mig.current}"
        return _with_plan(inventory, gpu, table, wanted, GpuAnswer(gpu.pci, gpu.product, False, sentence, "MODE"))
    if starts:
        at = ", ".join(str(table.profiles[wanted].placement(s)) for s in starts)
        answer = GpuAnswer(gpu.pci, gpu.product, True, f"{shown} fits now, at {at}")
        return _with_plan(inventory, gpu, table, wanted, answer)
    return _with_plan(inventory, gpu, table, wanted, _explain_misfit(table, gpu, wanted))


def _profile_id(table: PlacementTable, name: str) -> int | None:
    if name.startswith("id:"):
        number = decimal(name[3:])
        return number if number in table.profiles else None
    found = table.family.by_name.get(name)
    if found is None:  # a compute instance profile: use its GPU instance profile
        found = next((p for p in table.family.profiles if any(c.name == name for c in p.compute)), None)
    return found.id if found else None


def _explain_misfit(table: PlacementTable, gpu: Gpu, wanted: int) -> GpuAnswer:
    shown = table.profiles[wanted].name
    overlapping = {
        i.id: i for s in table.starts[wanted] for i in gpu.instances if i.place.mask & table.masks[wanted, s]
    }
    counts = Counter(i.profile_id for i in gpu.instances if i.profile_id in table.profiles)
    refusal = next(refusals(table, counts + Counter([wanted])), None)
    everywhere = all(
        any(i.place.mask & table.masks[wanted, s] for i in overlapping.values()) for s in table.starts[wanted]
    )
    if refusal is not None and not everywhere:
        return GpuAnswer(gpu.pci, gpu.product, False, f"{shown} does not fit now: {refusal.message}", refusal.rule)
    mask = 0
    for instance in overlapping.values():
        mask |= instance.place.mask
    return GpuAnswer(
        gpu.pci,
        gpu.product,
        False,
        str(occupancy(table, gpu, wanted)),
        "PLACEMENT",
        slices(mask),
        tuple(h for i in overlapping.values() for h in i.holders),
    )


def occupancy(table: PlacementTable, gpu: Gpu, wanted: int) -> StructuredText:
    """Return the sentence for a profile whose every placement is taken, with the instances at each."""
    taken = StructuredText.joined("; ", (_occupants(table, gpu, wanted, s) for s in table.starts[wanted]))
    return StructuredText(f"{table.profiles[wanted].name} does not fit now: every placement is taken (", taken, ")")


def _occupants(table: PlacementTable, gpu: Gpu, wanted: int, start: int) -> StructuredText:
    overlapping = [i for i in gpu.instances if i.place.mask & table.masks[wanted, start]]
    names = [StructuredText((i.profile, i.place), " (held)" if i.held else "") for i in overlapping]
    return StructuredText(table.profiles[wanted].placement(start), " by ", StructuredText.joined(", ", names))


def _with_plan(inventory: Inventory, gpu: Gpu, table: PlacementTable, wanted: int, answer: GpuAnswer) -> GpuAnswer:
    """Add the cheapest plan: it destroys the fewest instances, and never a held one."""
    # Destroying an instance of a profile does not help to add one of the same profile.
    idle = sorted((i for i in gpu.instances if not i.held and i.profile_id != wanted), key=lambda i: i.id)
    for n in range(len(idle) + 1):
        options = [o for gone in combinations(idle, n) for o in _options(table, gpu, gone, wanted)]
        if options:
            _, gone, start = min(options, key=lambda o: (o[0], [i.id for i in o[1]]))
            profile = table.profiles[wanted]
            removed = ",".join(f"{i.profile}@{i.place.start}" for i in gone)
            next_step = f"aliquot plan --gpu {gpu.pci} --add {profile.name}" + (
                f" --remove {removed}" if removed else ""
            )
            cheapest = _plan_for(inventory, gpu, profile, gone, start)
            listed = ", ".join(f"{i.profile} at {i.placement}" for i in gone)
            more = f"; it is enough to destroy idle instances: {listed}" if gone else ""
            return msgspec.structs.replace(answer, sentence=answer.sentence + more, plan=cheapest, next_step=next_step)
    held = tuple(h for i in gpu.instances for h in i.holders)
    if not held:
        most = table.profiles[wanted].max_instances
        return msgspec.structs.replace(answer, next_step=f"this GPU holds at most {most}: aliquot profiles {gpu.pci}")
    return msgspec.structs.replace(
        answer, holders=held, next_step="every plan destroys a held instance: end the holders, or use --policy wait"
    )


def _options(
    table: PlacementTable, gpu: Gpu, gone: tuple[GpuInstance, ...], wanted: int
) -> list[tuple[int, tuple[GpuInstance, ...], int]]:
    rest = [k for k in (placed_key(i) for i in gpu.instances if i not in gone) if k in table.masks]
    starts = pack.legal_starts(table, rest, wanted)
    best = [s for s in table.choices(wanted, table.mask(rest), bool(gpu.slots_mirrored)) if s in starts][:1]
    return [(-table.headroom(table.mask(rest) | table.masks[wanted, s]), gone, s) for s in best]


def _plan_for(inventory: Inventory, gpu: Gpu, profile: Profile, gone: tuple[GpuInstance, ...], start: int) -> Plan:
    """Return the plan that adds an instance after others are destroyed."""
    current = make_restore_point(inventory, [gpu.pci]).gpus[0]
    to_destroy = {placed_key(i) for i in gone}
    stay = tuple(w for w in current.instances or () if (w.profile_id, w.start) not in to_destroy)
    new = DesiredInstance(profile_id=profile.id, name=profile.name, compute=(profile.default_compute.id,), start=start)
    desired_gpu = DesiredGpu(pci=gpu.pci, mig=True, instances=(*stay, new), source="explain")
    return plan(inventory, Desired(gpus=(desired_gpu,), name=f"one more {profile.name}"), Policy())
