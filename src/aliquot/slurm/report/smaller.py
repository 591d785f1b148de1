"""The smallest profile that would do for the peak of a job, and the part of a GPU that it saves.

``core.planner.rightsizing`` decides, as for an instance that was watched on its node.
"""

from __future__ import annotations

import math
from functools import lru_cache

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.usage import Usage
from aliquot.core.planner.rightsizing import RightsizingHint, find_smaller
from aliquot.core.planner.usage_tracking import STEP_MIB
from aliquot.slurm.gpus.type_facts import TypeFacts, shares_of

_STEPS = 20
"""Peaks of compute are rounded up to a twentieth, as in the record of a node's usage."""


class SmallerProfile(msgspec.Struct, frozen=True):
    """A profile that would do in place of a type."""

    profile: str
    memory_mib: int
    saved: float
    """The part of a GPU that each device saves, by billing share."""


def smaller_profile(facts: TypeFacts, peak_mib: int, compute: float | None) -> SmallerProfile | None:
    """Return the profile that would do on each kind of board that may have the type, or None.

    ``compute`` is the largest share of time in which the device computed; None if it was not measured.
    """
    rounded = None if compute is None else min(1.0, math.ceil(compute * _STEPS) / _STEPS)
    return _smaller(facts, -(-peak_mib // STEP_MIB) * STEP_MIB, rounded)


@lru_cache(maxsize=8192)
def _smaller(facts: TypeFacts, peak_mib: int, compute: float | None) -> SmallerProfile | None:
    found = [_on_board(catalog.family(name), facts.profile, peak_mib, compute) for name in facts.families]
    names = {each.profile if each else "" for each in found}
    if len(names) != 1 or None in found:
        return None
    return min((each for each in found if each), key=lambda each: (each.saved, each.memory_mib))


def _on_board(family: Family, profile: str, peak_mib: int, compute: float | None) -> SmallerProfile | None:
    present = _present(family, profile)
    if present is None:
        return None
    usage = Usage("", memory_total_mib=present.memory_mib, peak_mib=peak_mib, peak_compute=compute, watched_since=1.0)
    hint = find_smaller(usage, present, family, now=1.0, least_s=0.0)
    return None if hint is None else _saving(family, profile, hint)


def _present(family: Family, profile: str) -> Profile | None:
    """Return the profile of a MIG device, or for a whole GPU the one that takes all of it."""
    if not profile:
        return max(family.plain_profiles, key=lambda each: (each.size, each.compute_slices))
    return next((each for name, each in family.by_name.items() if name.lower() == profile), None)


def _saving(family: Family, profile: str, hint: RightsizingHint) -> SmallerProfile | None:
    now, then = (
        shares_of(TypeFacts(profile=name, families=(family.name,))) for name in (profile, hint.profile.lower())
    )
    saved = now[0].share - then[0].share if now and then else 0
    return SmallerProfile(hint.profile, hint.memory_mib, float(saved)) if saved > 0 else None
