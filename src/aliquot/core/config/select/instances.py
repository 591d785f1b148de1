"""The resolution of requests by name and count into one per GPU instance, with its compute instances."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.core.config.select.profile_lookup import ProfileMatch, match_profile
from aliquot.core.config.text.instance_request import InstanceRequest
from aliquot.core.model.catalog import ComputeProfile, Family, Profile
from aliquot.core.model.desired import DesiredInstance, RuleCode
from aliquot.core.planner import compute_instances as compute


class InstanceProblem(msgspec.Struct, frozen=True):
    """The reason why a family cannot satisfy a request: ``rule`` and the rest of a sentence about it."""

    rule: RuleCode
    request: InstanceRequest
    sentence: str = ""


def resolve(
    family: Family, requests: Sequence[InstanceRequest]
) -> tuple[tuple[DesiredInstance, ...], tuple[InstanceProblem, ...]]:
    """Return the GPU instances that are requested of this family's GPUs, widest first, and the problems.

    Compute instances that are requested by name share GPU instances of their profile. Here each joins the first one
    with room, and ``DesiredInstance.loose`` lets the planner choose another.
    """
    problems: list[InstanceProblem] = []
    wanted: list[tuple[InstanceRequest, ProfileMatch]] = []
    whole: list[tuple[ProfileMatch, DesiredInstance]] = []
    for request in requests:
        found = match_profile(family, request)
        problem = InstanceProblem("UNKNOWN_PROFILE", request) if found is None else _misplaced(found.profile, request)
        if problem is not None or found is None:
            problems += [problem] if problem else []
        elif request.compute is None:
            wanted += [(request, found)] * request.count
        else:
            made = _explicit(family, request, found.profile, problems)
            whole += [(found, made)] if made else []
    packed = _pack(wanted) + whole
    packed.sort(key=lambda item: _order(item[0]))
    return tuple(made for _, made in packed), tuple(problems)


def _misplaced(profile: Profile, request: InstanceRequest) -> InstanceProblem | None:
    if request.start is None:
        return None
    if request.start not in profile.starts or request.size not in (None, profile.size):
        legal = ", ".join(str(p) for p in profile.placements)
        return InstanceProblem("BAD_PLACEMENT", request, f"{profile.name} can only be placed at {legal}")
    return None


def _order(item: ProfileMatch) -> tuple[int, int, int, int]:
    """Return the sort key: widest first, as in mig-parted. The memory size and id break ties, which it leaves open."""
    return -item.profile.compute_slices, -item.compute.compute_slices, -item.profile.size, item.profile.id


def _pack(wanted: list[tuple[InstanceRequest, ProfileMatch]]) -> list[tuple[ProfileMatch, DesiredInstance]]:
    wanted.sort(key=lambda item: _order(item[1]))
    groups: list[tuple[ProfileMatch, int | None, list[int]]] = []
    for request, found in wanted:
        alike = (parts for each, start, parts in groups if (each.profile, start) == (found.profile, request.start))
        group = next((parts for parts in alike if compute.fits(found.profile, [*parts, found.compute.id])), None)
        if group is None:
            groups.append((found, request.start, [found.compute.id]))
        else:
            group.append(found.compute.id)
    return [
        (
            found,
            DesiredInstance(found.profile.id, found.profile.name, tuple(parts), start, loose=not found.compute.default),
        )
        for found, start, parts in groups
    ]


def _explicit(
    family: Family, request: InstanceRequest, profile: Profile, problems: list[InstanceProblem]
) -> DesiredInstance | None:
    """Resolve a GPU instance whose compute instances are listed one by one."""
    parts: list[ComputeProfile] = []
    for part in request.compute or ():
        found = match_profile(family, part)
        if found is None or found.profile.id != profile.id:
            problems.append(
                InstanceProblem("UNKNOWN_PROFILE", part, f"it is not a compute instance profile of {profile.name}")
            )
        else:
            parts.append(found.compute)
    if len(parts) != len(request.compute or ()):
        return None
    starts = tuple(c.start for c in request.compute or () if c.start is not None)
    ids = tuple(c.id for c in parts)
    if not compute.fits(profile, ids, starts or None):
        names = ", ".join(c.name for c in parts)
        problems.append(
            InstanceProblem("COMPUTE_DOES_NOT_FIT", request, f"{names} do not fit into one {profile.name} that way")
        )
        return None
    return DesiredInstance(profile.id, profile.name, ids, request.start, starts or None)
