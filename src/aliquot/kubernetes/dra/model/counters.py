"""The rules of MIG as shared counters: devices that the counters of a GPU admit together are legal together.

Every rule is a limit on a sum, so counters express each of them exactly, with nothing left to the safe side:

- No two instances overlap: one counter per memory slice.
- Compute slices, engines, instances of one profile and ``at-most`` rules: one counter each.
- ``excludes``: the excluding profile takes the whole counter, all others except its exceptions take one of it.

A limit that another one implies has no counter. 1.34 admits 32 counters in a slice, and each costs the scheduler time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

import msgspec

from aliquot.core.model.catalog import Family, Profile, Rule
from aliquot.kubernetes.dra.model.naming import label_word

ENGINE_COUNTERS = {
    "ce": "copy-engines",
    "dec": "decoders",
    "enc": "encoders",
    "jpeg": "jpeg-engines",
    "ofa": "ofa-engines",
}
"""Counters by engine, with the names of NVIDIA's driver."""
_EXCLUSIVE = 64
"""What an excluding profile takes: more than a GPU can have instances. The larger it is, the more limits imply it."""

Counters = Mapping[str, int]


class FamilyCounters(msgspec.Struct, frozen=True):
    """The counters of every GPU of a family."""

    totals: dict[str, int]
    """What a GPU without instances has."""
    instances: dict[tuple[int, int], dict[str, int]]
    """What an instance takes, by profile id and first memory slice. Counters of which it takes nothing are left out."""


class _Limit(msgspec.Struct, frozen=True):
    """A limit on the sum over all instances. ``uses`` is by profile id."""

    name: str
    total: int
    uses: dict[int, int]

    def implies(self, other: _Limit) -> bool:
        """Report whether this limit keeps the other one for any set of instances."""
        scaled = all(use * self.total <= self.uses.get(p, 0) * other.total for p, use in other.uses.items())
        return self.total > 0 and scaled


@lru_cache(maxsize=64)
def family_counters(family: Family) -> FamilyCounters:
    """Return the counters of a family. Equal tables share one."""
    limits = _needed(family)
    slices = {f"memory-slice-{n}": 1 for n in range(family.memory_slices)}
    instances = {}
    for profile in family.profiles:
        shares = {limit.name: limit.uses[profile.id] for limit in limits if limit.uses.get(profile.id)}
        for start in profile.starts:
            taken = {f"memory-slice-{n}": 1 for n in range(start, start + profile.size)}
            instances[profile.id, start] = taken | shares
    return FamilyCounters(slices | {limit.name: limit.total for limit in limits}, instances)


def taken(uses: Iterable[Counters]) -> dict[str, int]:
    """Add up what several devices take."""
    total: dict[str, int] = {}
    for one in uses:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return total


def fits(uses: Counters, before: Counters, totals: Counters) -> bool:
    """Report whether a device fits beside what is already taken. A counter that the set lacks is zero."""
    return all(before.get(name, 0) + count <= totals.get(name, 0) for name, count in uses.items())


def _needed(family: Family) -> list[_Limit]:
    memory = _Limit("", family.memory_slices, {p.id: p.size for p in family.profiles})
    needed: list[_Limit] = []
    for limit in _limits(family):
        if any(limit.uses.values()) and not any(known.implies(limit) for known in (memory, *needed)):
            needed.append(limit)
    return needed


def _limits(family: Family) -> Iterator[_Limit]:
    yield _Limit("compute-slices", family.compute_slices, {p.id: p.compute_slices for p in family.profiles})
    for engine, name in ENGINE_COUNTERS.items():
        total = family.engine_totals.get(engine)
        if total is not None:
            yield _Limit(name, total, {p.id: p.engines.get(engine) or 0 for p in family.profiles})
    for number, rule in enumerate(family.rules):
        uses = _rule_uses(family, rule)
        if uses:
            total = _EXCLUSIVE if rule.kind == "excludes" else rule.count
            yield _Limit(f"{rule.kind}-{number}", total, uses)
    for profile in family.profiles:
        if profile.max_instances < _most_side_by_side(profile):
            yield _Limit(f"instances-{label_word(profile.name)}", profile.max_instances, {profile.id: 1})


def _rule_uses(family: Family, rule: Rule) -> dict[int, int]:
    """Return what each profile takes of the counter of a rule; nothing if other limits contain the rule."""
    listed = {family.by_name[name].id for name in rule.profiles if name in family.by_name}
    match rule.kind:
        case "at-most":
            return dict.fromkeys(listed, 1)
        case "at-most-compute" | "at-most-gfx":
            return {p.id: 1 for p in family.profiles if p.gfx == (rule.kind == "at-most-gfx")}
        case "excludes":
            exceptions = {family.by_name[name].id for name in rule.exceptions if name in family.by_name}
            beside = {p.id: 1 for p in family.profiles if p.id not in exceptions}
            return beside | dict.fromkeys(listed, _EXCLUSIVE)
    return {}


def _most_side_by_side(profile: Profile) -> int:
    """Return how many instances of a profile fit without overlap. All have one size, so the lowest starts are best."""
    count, end = 0, 0
    for start in sorted(profile.starts):
        if start >= end:
            count, end = count + 1, start + profile.size
    return count
