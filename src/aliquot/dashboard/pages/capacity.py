"""Remaining capacity of a GPU by profile: how many more fit, at which slices, and what would make room."""

from __future__ import annotations

import msgspec

from aliquot.core.model.actions import Create
from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.desired import DesiredGpu
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.planner.explain import GpuAnswer, explain, occupancy
from aliquot.core.planner.fragmentation import Fragmentation
from aliquot.core.planner.placement_table import compiled_table
from aliquot.core.rendering import mig_picture
from aliquot.dashboard import formatting as words
from aliquot.dashboard import gpu_bars as pictures
from aliquot.dashboard.gpu_bars import FreeMemory, GpuBar
from aliquot.dashboard.pages.gpu_view import offered

POSSIBLE, CHOSEN = "spot", "chosen"
"""Possible placements, and the placement that the planner chooses."""


class ProfileFit(msgspec.Struct, frozen=True):
    """A profile with its capacity. ``where`` are the slices for one more instance.

    ``lost`` is how many more would fit if idle instances moved. If ``offered``, the page shows "Make room".
    ``uncertainty`` names the values that are not from hardware or NVIDIA's documents.
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
    """Advice on how to get one more instance of a profile."""

    profile: str
    fits: bool
    sentence: str
    """Why it fits or not."""
    mig: str = ""
    """The whole geometry with the new instance, as ``PartitionGpu.mig``; "" if there is none."""
    gives_up: str = ""
    """Idle instances that this would destroy."""
    moving_helps: bool = False
    """Whether it is enough to move idle instances."""
    next_step: str = ""
    """What to do if no change of this GPU helps."""


def fits(inventory: Inventory, gpu: Gpu, found: Fragmentation) -> tuple[ProfileFit, ...]:
    """Build a row for every profile of the GPU's family."""
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
    """Format the uncertain facts: ``estimate: memory; inferred: placements``."""
    found: dict[str, list[str]] = {}
    for fact, word in profile.confidence.items():
        if word in ("estimate", "unknown", "inferred"):
            found.setdefault(word, []).append(fact)
    return "; ".join(f"{word}: {', '.join(facts)}" for word, facts in found.items())


def advice(inventory: Inventory, gpu: Gpu, found: Fragmentation, profile: str) -> FitAdvice | None:
    """Explain how to get one more of a profile. Return None if this GPU does not have the profile."""
    family = inventory.family(gpu)
    if profile not in {p.name for p in family.profiles}:
        return None
    answer = explain(inventory, profile, gpu.pci).answers[0]
    profile_capacity = next(r for r in found.capacities if r.profile == profile)
    desired_gpu = answer.plan.desired.gpus[0] if answer.plan and answer.plan.changes else None
    if answer.fits:
        place = _place(answer)
        sentence = f"A {profile} fits now" + (f", on {words.place(place)}." if place else ".")
        return FitAdvice(profile, True, sentence, _text(gpu, desired_gpu) if desired_gpu else "")
    if profile_capacity.lost:
        sentence = f"A {profile} does not fit now, but it would if idle instances moved. No instance is lost."
        return FitAdvice(profile, False, sentence, moving_helps=True)
    lost = _given_up(gpu, desired_gpu) if desired_gpu else ""
    mig = _text(gpu, desired_gpu) if desired_gpu else ""
    return FitAdvice(profile, False, _sentence(answer, gpu, family, profile), mig, lost, next_step=_next(answer))


def _sentence(answer: GpuAnswer, gpu: Gpu, family: Family, profile: str) -> str:
    """Return why a profile does not fit. If every placement is taken, the placements are shown as slices."""
    taken = answer.rule == "PLACEMENT"
    reason = occupancy(compiled_table(family), gpu, family.by_name[profile].id) if taken else answer.sentence
    text = words.sentence(reason, 600)
    return text[:1].upper() + text[1:] + "."


def _next(answer: GpuAnswer) -> str:
    """Return the next step for a user of the page, without a command if holders block it."""
    if answer.holders:
        return "every solution needs an instance that is held: stop its holder, or choose another GPU"
    return words.clean(answer.next_step or "", 300)


def _place(answer: GpuAnswer) -> Placement | None:
    actions = answer.plan.actions if answer.plan else ()
    return next((Placement.parse(a.placement) for a in actions if isinstance(a, Create)), None)


def _text(gpu: Gpu, desired_gpu: DesiredGpu) -> str:
    """Format a placed geometry for ``--mig``. Return "" if the text could not describe the compute instances."""
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
    """Mark the possible placements for one more of a profile, and the free memory that does not fit it."""
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
