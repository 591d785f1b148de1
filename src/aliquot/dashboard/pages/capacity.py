"""What still fits on a GPU: per profile how many, where, why not, and what would help."""

from __future__ import annotations

import msgspec

from aliquot.core.model.actions import Create
from aliquot.core.model.catalog import Profile
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.planner.explain import GpuAnswer, explain
from aliquot.core.planner.fragmentation import Fragmentation
from aliquot.core.rendering import mig_picture
from aliquot.dashboard import formatting as words
from aliquot.dashboard import gpu_bars as pictures
from aliquot.dashboard.gpu_bars import FreeMemory, GpuBar
from aliquot.dashboard.pages.gpu_view import offered

POSSIBLE, CHOSEN = "spot", "chosen"
"""Where one could go, and where it would go."""


class ProfileFit(msgspec.Struct, frozen=True):
    """One profile. ``where`` are the places for one more; ``uncertainty`` says which figures are not from hardware or
    NVIDIA's documents; ``lost`` how many more there would be if idle instances moved; ``offered``: room can be made.
    """

    profile: str
    memory: str
    compute: str
    now: int
    repacked: int
    most: int
    lost: int
    offered: bool
    where: str
    uncertainty: str = ""


class FitAdvice(msgspec.Struct, frozen=True):
    """One more of a profile: ``fits`` now or not, ``sentence`` says why. ``mig`` is the whole geometry with it, as a
    cut takes it, "" where there is none; ``gives_up`` are idle instances that this would cost; ``moving_helps``: moving
    idle ones is enough. ``next_step`` where nothing here helps.
    """

    profile: str
    fits: bool
    sentence: str
    mig: str = ""
    gives_up: str = ""
    moving_helps: bool = False
    next_step: str = ""


def fits(inventory: Inventory, gpu: Gpu, found: Fragmentation) -> tuple[ProfileFit, ...]:
    """A row for every profile of the family's table."""
    family = inventory.family(gpu)
    capacities = {profile_capacity.profile_id: profile_capacity for profile_capacity in found.capacities}
    offers = offered(found)
    out = []
    for profile in family.profiles:
        profile_capacity = capacities[profile.id]
        places = [words.ranges(range(s, s + profile.size)) for s in profile_capacity.starts]
        out.append(
            ProfileFit(
                profile=profile.name,
                memory=words.memory(profile.memory_mib),
                compute=f"{profile.compute_slices} of {family.compute_slices}",
                now=profile_capacity.now,
                repacked=profile_capacity.repacked,
                most=profile.max_instances,
                lost=profile_capacity.lost,
                offered=profile_capacity in offers,
                where=" or ".join(places) if places else "nowhere now",
                uncertainty=uncertainty(profile),
            )
        )
    return tuple(out)


def uncertainty(profile: Profile) -> str:
    """``estimate: memory; inferred: placements``."""
    found: dict[str, list[str]] = {}
    for fact, word in profile.confidence.items():
        if word in ("estimate", "unknown", "inferred"):
            found.setdefault(word, []).append(fact)
    return "; ".join(f"{word}: {', '.join(facts)}" for word, facts in found.items())


def advice(inventory: Inventory, gpu: Gpu, found: Fragmentation, profile: str) -> FitAdvice | None:
    """How to get one more of a profile; None for a name that this GPU does not have."""
    family = inventory.family(gpu)
    if profile not in {p.name for p in family.profiles}:
        return None
    answer = explain(inventory, profile, gpu.pci).answers[0]
    profile_capacity = next(r for r in found.capacities if r.profile == profile)
    desired_gpu = answer.plan.desired.gpus[0] if answer.plan and answer.plan.changes else None
    if answer.fits:
        place = _place(answer)
        sentence = f"A {profile} fits now" + (f": it would go to {words.place(place)}." if place else ".")
        return FitAdvice(profile, True, sentence, _text(gpu, desired_gpu) if desired_gpu else "")
    if profile_capacity.lost:
        sentence = f"A {profile} does not fit as things lie, but it would if idle instances moved. None is given up."
        return FitAdvice(profile, False, sentence, moving_helps=True)
    lost = _given_up(gpu, desired_gpu) if desired_gpu else ""
    mig = _text(gpu, desired_gpu) if desired_gpu else ""
    return FitAdvice(profile, False, _sentence(answer), mig, lost, next_step=_next(answer))


def _sentence(answer: GpuAnswer) -> str:
    text = words.placed(words.clean(answer.sentence, 600))
    return text[:1].upper() + text[1:] + "."


def _next(answer: GpuAnswer) -> str:
    """What to do, for somebody who looks at a page and types nothing."""
    if answer.holders:
        return "every way needs an instance that is held: end what runs there, or choose another GPU"
    return words.clean(answer.next_step or "", 300)


def _place(answer: GpuAnswer) -> Placement | None:
    actions = answer.plan.actions if answer.plan else ()
    return next((Placement.parse(a.placement) for a in actions if isinstance(a, Create)), None)


def _text(gpu: Gpu, desired_gpu: DesiredGpu) -> str:
    """A placed geometry as ``--mig`` takes it; "" where that text could not say what is inside instances."""
    if mig_picture.has_divided_instances(gpu):
        return ""
    return ",".join(f"{w.name}@{w.start}" for w in desired_gpu.instances or ())


def _given_up(gpu: Gpu, desired_gpu: DesiredGpu) -> str:
    stay = {(w.profile_id, w.start) for w in desired_gpu.instances or ()}
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    return words.listed(
        f"{mig_picture.LETTERS[n]} ({i.profile})"
        for n, i in enumerate(ordered)
        if (i.profile_id, i.place.start) not in stay
    )


def pointed(inventory: Inventory, gpu: Gpu, bar: GpuBar, found: Fragmentation, profile: str) -> GpuBar:
    """The picture with the places for one more of a profile marked, and the free memory where none can be."""
    family = inventory.family(gpu)
    wanted = next(p for p in family.profiles if p.name == profile)
    profile_capacity = next(r for r in found.capacities if r.profile == profile)
    reach = {n for s in profile_capacity.starts for n in range(s, s + wanted.size)}
    shown = mig_picture.current_instances(gpu)
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    states = {p.letter: words.state(i) for p, i in zip(shown, ordered, strict=True)}
    odd = tuple(b.letter for b in bar.blocks if b.odd)
    gaps = FreeMemory(set(found.free) - reach, wanted=profile)
    drawn = pictures.instances(bar.name, family.memory_slices, shown, gaps=gaps, states=states, odd=odd)
    answer = explain(inventory, profile, gpu.pci).answers[0]
    chosen = _place(answer) if answer.fits else None
    others = [wanted.placement(s) for s in profile_capacity.starts if chosen is None or s != chosen.start]
    marks = pictures.marks(family.memory_slices, [chosen], CHOSEN, f"{profile} would go here") if chosen else ()
    marks += pictures.marks(family.memory_slices, others, POSSIBLE, "or here")
    return msgspec.structs.replace(drawn, marks=(*bar.marks, *marks))
