"""Wishes by name and count to one wish per GPU instance, with its compute instances."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.config.select.profile_lookup import Meaning, meaning
from aliquot.core.config.text.instance_request import Wish
from aliquot.core.model.catalog import ComputeProfile, Family, Profile
from aliquot.core.model.desired import InstanceWish
from aliquot.core.model.placement import Placement


class Problem(msgspec.Struct, frozen=True):
    """Why a wish cannot be met on a family: ``rule`` and the rest of a sentence about it."""

    rule: str
    wish: Wish
    sentence: str = ""


def resolve(family: Family, wishes: Sequence[Wish]) -> tuple[tuple[InstanceWish, ...], tuple[Problem, ...]]:
    """The GPU instances that the wishes ask for on GPUs of this family, widest first, and what is wrong with them.

    Compute instances of one GPU instance profile share GPU instances as mig-parted lets them: each joins the last
    one while it has room, else starts another.
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
    open_groups: dict[tuple[int, int | None], int] = {}
    groups: list[tuple[Meaning, int | None, list[ComputeProfile]]] = []
    for wish, found in wanted:
        key = (found.profile.id, wish.start)
        last = groups[open_groups[key]] if key in open_groups else None
        if last is not None and fits(found.profile, [*last[2], found.compute]):
            last[2].append(found.compute)
            continue
        open_groups[key] = len(groups)
        groups.append((found, wish.start, [found.compute]))
    return [
        (found, InstanceWish(found.profile.id, found.profile.name, tuple(c.id for c in compute), start))
        for found, start, compute in groups
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
    if not (_legal(parts, starts) if starts else fits(profile, parts)):
        names = ", ".join(c.name for c in parts)
        problems.append(Problem("COMPUTE_DOES_NOT_FIT", wish, f"{names} do not fit into one {profile.name} that way"))
        return None
    ids = tuple(c.id for c in parts)
    return InstanceWish(profile.id, profile.name, ids, wish.start, starts or None)


def fits(profile: Profile, parts: Sequence[ComputeProfile]) -> bool:
    """Whether compute instances fit side by side into one GPU instance."""
    ids = [c.id for c in parts]
    if sum(c.compute_slices for c in parts) > profile.compute_slices:
        return False
    return all(ids.count(c.id) <= c.max_instances for c in parts) and _room(sorted(parts, key=lambda c: -c.size), 0)


def _room(parts: Sequence[ComputeProfile], taken: int) -> bool:
    if not parts:
        return True
    return any(not p.mask & taken and _room(parts[1:], taken | p.mask) for p in parts[0].placements)


def _legal(parts: Sequence[ComputeProfile], starts: Sequence[int]) -> bool:
    taken = 0
    for part, start in zip(parts, starts, strict=True):
        mask = Placement(start, part.size).mask
        if start not in part.starts or mask & taken:
            return False
        taken |= mask
    return True
