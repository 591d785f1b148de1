"""What still fits on a GPU: per profile how many, where, why not, and what would help."""

from __future__ import annotations

import msgspec

from aliquot.core.model.actions import Create
from aliquot.core.model.catalog import Profile
from aliquot.core.model.desired import GpuWish
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.planner.explain import Answer, explain
from aliquot.core.planner.fragmentation import Holes
from aliquot.core.rendering import mig_picture as pieces
from aliquot.dashboard import formatting as words
from aliquot.dashboard import gpu_bars as pictures
from aliquot.dashboard.gpu_bars import Bar, Gaps
from aliquot.dashboard.pages.gpu_card import offered

SPOT, CHOSEN = "spot", "chosen"
"""Where one could go, and where it would go."""


class Fit(msgspec.Struct, frozen=True):
    """One profile. ``where`` are the places for one more; ``doubt`` says which figures are not from hardware or
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
    doubt: str = ""


class Way(msgspec.Struct, frozen=True):
    """One more of a profile: ``fits`` now or not, ``sentence`` says why. ``mig`` is the whole geometry with it, as a
    cut takes it, "" where there is none; ``gives_up`` are idle instances that this would cost; ``make_room``: moving
    idle ones is enough. ``next_step`` where nothing here helps.
    """

    profile: str
    fits: bool
    sentence: str
    mig: str = ""
    gives_up: str = ""
    make_room: bool = False
    next_step: str = ""


def fits(inventory: Inventory, gpu: Gpu, found: Holes) -> tuple[Fit, ...]:
    """A row for every profile of the family's table."""
    family = inventory.family(gpu)
    rooms = {room.profile_id: room for room in found.rooms}
    offers = offered(found)
    out = []
    for profile in family.profiles:
        room = rooms[profile.id]
        places = [words.ranges(range(s, s + profile.size)) for s in room.starts]
        out.append(
            Fit(
                profile=profile.name,
                memory=words.memory(profile.memory_mib),
                compute=f"{profile.compute_slices} of {family.compute_slices}",
                now=room.now,
                repacked=room.repacked,
                most=profile.max_instances,
                lost=room.lost,
                offered=room in offers,
                where=" or ".join(places) if places else "nowhere now",
                doubt=doubt(profile),
            )
        )
    return tuple(out)


def doubt(profile: Profile) -> str:
    """``estimate: memory; inferred: placements``."""
    found: dict[str, list[str]] = {}
    for fact, word in profile.confidence.items():
        if word in ("estimate", "unknown", "inferred"):
            found.setdefault(word, []).append(fact)
    return "; ".join(f"{word}: {', '.join(facts)}" for word, facts in found.items())


def way(inventory: Inventory, gpu: Gpu, found: Holes, profile: str) -> Way | None:
    """How to get one more of a profile; None for a name that this GPU does not have."""
    family = inventory.family(gpu)
    if profile not in {p.name for p in family.profiles}:
        return None
    answer = explain(inventory, profile, gpu.pci).answers[0]
    room = next(r for r in found.rooms if r.profile == profile)
    wish = answer.plan.desired.gpus[0] if answer.plan and answer.plan.changes else None
    if answer.fits:
        place = _place(answer)
        sentence = f"A {profile} fits now" + (f": it would go to {words.place(place)}." if place else ".")
        return Way(profile, True, sentence, _text(gpu, wish) if wish else "")
    if room.lost:
        sentence = f"A {profile} does not fit as things lie, but it would if idle instances moved. None is given up."
        return Way(profile, False, sentence, make_room=True)
    lost = _given_up(gpu, wish) if wish else ""
    mig = _text(gpu, wish) if wish else ""
    return Way(profile, False, _sentence(answer), mig, lost, next_step=_next(answer))


def _sentence(answer: Answer) -> str:
    text = words.placed(words.clean(answer.sentence, 600))
    return text[:1].upper() + text[1:] + "."


def _next(answer: Answer) -> str:
    """What to do, for somebody who looks at a page and types nothing."""
    if answer.holders:
        return "every way needs an instance that is held: end what runs there, or choose another GPU"
    return words.clean(answer.next_step or "", 300)


def _place(answer: Answer) -> Placement | None:
    actions = answer.plan.actions if answer.plan else ()
    return next((Placement.parse(a.placement) for a in actions if isinstance(a, Create)), None)


def _text(gpu: Gpu, wish: GpuWish) -> str:
    """A placed geometry as ``--mig`` takes it; "" where that text could not say what is inside instances."""
    if pieces.divided(gpu):
        return ""
    return ",".join(f"{w.name}@{w.start}" for w in wish.instances or ())


def _given_up(gpu: Gpu, wish: GpuWish) -> str:
    stay = {(w.profile_id, w.start) for w in wish.instances or ()}
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    return words.listed(
        f"{pieces.LETTERS[n]} ({i.profile})" for n, i in enumerate(ordered) if (i.profile_id, i.place.start) not in stay
    )


def pointed(inventory: Inventory, gpu: Gpu, bar: Bar, found: Holes, profile: str) -> Bar:
    """The picture with the places for one more of a profile marked, and the free memory where none can be."""
    family = inventory.family(gpu)
    wanted = next(p for p in family.profiles if p.name == profile)
    room = next(r for r in found.rooms if r.profile == profile)
    reach = {n for s in room.starts for n in range(s, s + wanted.size)}
    shown = pieces.now(gpu)
    ordered = sorted(gpu.instances, key=lambda i: i.place.start)
    states = {p.letter: words.state(i) for p, i in zip(shown, ordered, strict=True)}
    odd = tuple(b.letter for b in bar.blocks if b.odd)
    gaps = Gaps(set(found.free) - reach, wanted=profile)
    drawn = pictures.instances(bar.name, family.memory_slices, shown, gaps=gaps, states=states, odd=odd)
    answer = explain(inventory, profile, gpu.pci).answers[0]
    chosen = _place(answer) if answer.fits else None
    others = [wanted.placement(s) for s in room.starts if chosen is None or s != chosen.start]
    marks = pictures.spots(family.memory_slices, [chosen], CHOSEN, f"{profile} would go here") if chosen else ()
    marks += pictures.spots(family.memory_slices, others, SPOT, "or here")
    return msgspec.structs.replace(drawn, marks=(*bar.marks, *marks))
