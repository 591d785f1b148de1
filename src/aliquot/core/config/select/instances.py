"""Wishes by name and count to one wish per GPU instance, with its compute instances."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.config.select.profile_lookup import Meaning, meaning
from aliquot.core.config.text.instance_request import Wish
from aliquot.core.model.catalog import ComputeProfile, Family, Profile
from aliquot.core.model.desired import InstanceWish
from aliquot.core.planner import compute_instances as compute


class Problem(msgspec.Struct, frozen=True):
    """Why a wish cannot be met on a family: ``rule`` and the rest of a sentence about it."""

    rule: str
    wish: Wish
    sentence: str = ""


def resolve(family: Family, wishes: Sequence[Wish]) -> tuple[tuple[InstanceWish, ...], tuple[Problem, ...]]:
    """The GPU instances that the wishes ask for on GPUs of this family, widest first, and what is wrong with them.

    Compute instances that are asked for by name share GPU instances of their profile: here each joins the first one
    with room, and ``InstanceWish.loose`` leaves the planner the choice.
    """
    problems: list[Problem] = []
    wanted: list[tuple[Wish, Meaning]] = []
    whole: list[tuple[Meaning, InstanceWish]] = []
    for wish in wishes:
        found = meaning(family, wish)
        problem = Problem("UNKNOWN_PROFILE", wish) if found is None else _misplaced(found.profile, wish)
        if problem is not None or found is None:
            problems += [problem] if problem else []
        elif wish.compute is None:
            wanted += [(wish, found)] * wish.count
        else:
            made = _explicit(family, wish, found.profile, problems)
            whole += [(found, made)] if made else []
    packed = _pack(wanted) + whole
    packed.sort(key=lambda item: _order(item[0]))
    return tuple(made for _, made in packed), tuple(problems)


def _misplaced(profile: Profile, wish: Wish) -> Problem | None:
    if wish.start is None:
        return None
    if wish.start not in profile.starts or wish.size not in (None, profile.size):
        legal = ", ".join(str(p) for p in profile.placements)
        return Problem("BAD_PLACEMENT", wish, f"{profile.name} can only be placed at {legal}")
    return None


def _order(item: Meaning) -> tuple[int, int, int, int]:
    """Widest first, as mig-parted sorts; the memory size, which it leaves to chance, decides what is left."""
    return -item.profile.compute_slices, -item.compute.compute_slices, -item.profile.size, item.profile.id


def _pack(wanted: list[tuple[Wish, Meaning]]) -> list[tuple[Meaning, InstanceWish]]:
    wanted.sort(key=lambda item: _order(item[1]))
    groups: list[tuple[Meaning, int | None, list[int]]] = []
    for wish, found in wanted:
        alike = (parts for each, start, parts in groups if (each.profile, start) == (found.profile, wish.start))
        room = next((parts for parts in alike if compute.fits(found.profile, [*parts, found.compute.id])), None)
        if room is None:
            groups.append((found, wish.start, [found.compute.id]))
        else:
            room.append(found.compute.id)
    return [
        (
            found,
            InstanceWish(found.profile.id, found.profile.name, tuple(parts), start, loose=not found.compute.default),
        )
        for found, start, parts in groups
    ]


def _explicit(family: Family, wish: Wish, profile: Profile, problems: list[Problem]) -> InstanceWish | None:
    """A GPU instance whose compute instances were listed one by one."""
    parts: list[ComputeProfile] = []
    for part in wish.compute or ():
        found = meaning(family, part)
        if found is None or found.profile.id != profile.id:
            problems.append(Problem("UNKNOWN_PROFILE", part, f"it is no compute instance profile of {profile.name}"))
        else:
            parts.append(found.compute)
    if len(parts) != len(wish.compute or ()):
        return None
    starts = tuple(c.start for c in wish.compute or () if c.start is not None)
    ids = tuple(c.id for c in parts)
    if not compute.fits(profile, ids, starts or None):
        names = ", ".join(c.name for c in parts)
        problems.append(Problem("COMPUTE_DOES_NOT_FIT", wish, f"{names} do not fit into one {profile.name} that way"))
        return None
    return InstanceWish(profile.id, profile.name, ids, wish.start, starts or None)
