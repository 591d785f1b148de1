"""Why a profile does not fit here now, and the cheapest plan that would make it fit."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import msgspec

from aliquot.core.model.desired import Desired, GpuWish, InstanceWish
from aliquot.core.model.inventory import API_VERSION, Gpu, GpuInstance, Holder, Inventory
from aliquot.core.model.placement import slices
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import Board, board
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import former
from aliquot.core.planner.rules import refusals
from aliquot.core.planner.target_state import key
from aliquot.foundation.decimals import decimal


class Answer(msgspec.Struct, frozen=True):
    """The answer for one GPU. ``plan`` is the cheapest way to make the profile fit: no action if it fits already."""

    gpu: str
    product: str
    fits: bool
    sentence: str
    rule: str = ""
    slices: tuple[int, ...] = ()
    holders: tuple[Holder, ...] = ()
    plan: Plan | None = None
    next_step: str | None = msgspec.field(name="next", default=None)


class Explanation(msgspec.Struct, frozen=True):
    """One answer per GPU that was asked about."""

    profile: str
    answers: tuple[Answer, ...]
    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str = "Explanation"


def explain(inventory: Inventory, profile: str, pci: str | None = None) -> Explanation:
    """Answers for one profile (name or ``id:N``) on every MIG-capable GPU, or on one."""
    gpus = [g for g in inventory.gpus if pci in (None, g.pci)]
    return Explanation(profile, tuple(_answer(inventory, g, profile) for g in gpus if g.mig.capable or pci))


def _answer(inventory: Inventory, gpu: Gpu, name: str) -> Answer:
    def no(rule: str, sentence: str, next_step: str | None = None) -> Answer:
        return Answer(gpu.pci, gpu.product, False, sentence, rule, next_step=next_step)

    if gpu.lost or not gpu.mig.capable:
        why = "has fallen off the bus" if gpu.lost else "has no MIG"
        return no("GPU_LOST" if gpu.lost else "NOT_CAPABLE", f"{gpu.product} {why}", "aliquot show")
    b = board(inventory.family(gpu))
    wanted = _profile_id(b, name)
    if wanted is None:
        names = ", ".join(p.name for p in b.family.profiles)
        return no(
            "UNKNOWN_PROFILE", f"{gpu.product} has no profile {name} (it has {names})", f"aliquot profiles {gpu.pci}"
        )
    placed = [k for k in map(key, gpu.instances) if k in b.masks]
    starts = pack.fits_beside(b, placed, wanted)
    shown = b.profiles[wanted].name
    if not gpu.mig.enabled:
        sentence = f"{shown} does not fit yet: MIG mode is {gpu.mig.current}"
        return _with_plan(inventory, gpu, b, wanted, Answer(gpu.pci, gpu.product, False, sentence, "MODE"))
    if starts:
        at = ", ".join(str(b.profiles[wanted].placement(s)) for s in starts)
        answer = Answer(gpu.pci, gpu.product, True, f"{shown} fits now, at {at}")
        return _with_plan(inventory, gpu, b, wanted, answer)
    return _with_plan(inventory, gpu, b, wanted, _why_not(b, gpu, wanted))


def _profile_id(b: Board, name: str) -> int | None:
    if name.startswith("id:"):
        number = decimal(name[3:])
        return number if number in b.profiles else None
    found = b.family.by_name.get(name)
    if found is None:  # a compute instance needs a GPU instance of its kind
        found = next((p for p in b.family.profiles if any(c.name == name for c in p.compute)), None)
    return found.id if found else None


def _why_not(b: Board, gpu: Gpu, wanted: int) -> Answer:
    shown = b.profiles[wanted].name
    way = {i.id: i for s in b.starts[wanted] for i in gpu.instances if i.place.mask & b.masks[wanted, s]}
    counts = Counter(i.profile_id for i in gpu.instances if i.profile_id in b.profiles)
    refusal = next(refusals(b, counts + Counter([wanted])), None)
    everywhere = all(any(i.place.mask & b.masks[wanted, s] for i in way.values()) for s in b.starts[wanted])
    if refusal is not None and not everywhere:
        return Answer(gpu.pci, gpu.product, False, f"{shown} does not fit now: {refusal.message}", refusal.rule)
    mask = 0
    for instance in way.values():
        mask |= instance.place.mask
    spots = "; ".join(_spot(b, gpu, wanted, s) for s in b.starts[wanted])
    return Answer(
        gpu.pci,
        gpu.product,
        False,
        f"{shown} does not fit now: every placement is taken ({spots})",
        "PLACEMENT",
        slices(mask),
        tuple(h for i in way.values() for h in i.holders),
    )


def _spot(b: Board, gpu: Gpu, wanted: int, start: int) -> str:
    by = [i for i in gpu.instances if i.place.mask & b.masks[wanted, start]]
    names = ", ".join(f"{i.profile} at {i.placement}" + (" (held)" if i.held else "") for i in by)
    return f"{b.profiles[wanted].placement(start)} by {names}"


def _with_plan(inventory: Inventory, gpu: Gpu, b: Board, wanted: int, answer: Answer) -> Answer:
    """Add the cheapest plan: the fewest instances that must go, held ones never."""
    # One more of a profile is not won by giving up one that is there.
    idle = sorted((i for i in gpu.instances if not i.held and i.profile_id != wanted), key=lambda i: i.id)
    for n in range(len(idle) + 1):
        options = [o for gone in combinations(idle, n) for o in _options(b, gpu, gone, wanted)]
        if options:
            _, gone, start = min(options, key=lambda o: (o[0], [i.id for i in o[1]]))
            return _plan_for(inventory, gpu, b, wanted, answer, gone, start)
    held = tuple(h for i in gpu.instances for h in i.holders)
    if not held:
        most = b.profiles[wanted].max_instances
        return msgspec.structs.replace(answer, next_step=f"this GPU holds at most {most}: aliquot profiles {gpu.pci}")
    return msgspec.structs.replace(
        answer, holders=held, next_step="every way needs a held instance: end the holders, or use --policy wait"
    )


def _options(
    b: Board, gpu: Gpu, gone: tuple[GpuInstance, ...], wanted: int
) -> list[tuple[int, tuple[GpuInstance, ...], int]]:
    rest = [k for k in (key(i) for i in gpu.instances if i not in gone) if k in b.masks]
    starts = pack.fits_beside(b, rest, wanted)
    best = [s for s in b.choices(wanted, b.mask(rest), bool(gpu.swapped)) if s in starts][:1]
    return [(-b.room(b.mask(rest) | b.masks[wanted, s]), gone, s) for s in best]


def _plan_for(
    inventory: Inventory, gpu: Gpu, b: Board, wanted: int, answer: Answer, gone: tuple[GpuInstance, ...], start: int
) -> Answer:
    profile = b.profiles[wanted]
    is_now = former(inventory, [gpu.pci]).gpus[0]
    doomed = {key(i) for i in gone}
    stay = tuple(w for w in is_now.instances or () if (w.profile_id, w.start) not in doomed)
    new = InstanceWish(profile_id=wanted, name=profile.name, compute=(profile.default_compute.id,), start=start)
    wish = GpuWish(pci=gpu.pci, mig=True, instances=(*stay, new), source="explain")
    cheapest = plan(inventory, Desired(gpus=(wish,), name=f"one more {profile.name}"), Policy())
    text = ",".join(f"{w.name}@{w.start}" for w in wish.instances or ())
    return msgspec.structs.replace(answer, plan=cheapest, next_step=f"aliquot plan --gpu {gpu.pci} --mig {text}")
