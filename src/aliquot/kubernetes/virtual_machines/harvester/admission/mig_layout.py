"""Whether a GPU can be cut as a MigConfiguration asks: by the tables of placements, not by a count.

The object does not say where instances lie that others made by hand. What it says is how many more of each profile can
be made (``available``), and that leaves few possibilities: a layout is refused only if it fits beside none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import Board, Placed, board
from aliquot.core.planner.rules import allowed, refusals
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice

Vector = tuple[tuple[int, int], ...]
"""(profile id, how many more of it can be made), ascending."""


def family_of(mig: MigConfiguration, function: PCIDevice | None) -> Family | None:
    """The table of the GPU, if one of those that its PCI id may have agrees with the totals that its driver told."""
    if function is None:
        return None
    device = f"0x{function.status.device_id}{function.status.vendor_id}".lower()
    found = [d.mig_family for d in catalog.devices() if d.pci_device.lower() == device and d.mig_family]
    told = {each.id: each.total for each in mig.status.profile_status}
    asked = {each.id for each in mig.spec.profile_spec}
    for name in dict.fromkeys(found):
        family = catalog.family(name)
        most = {p.id: p.max_instances for p in family.profiles}
        if told.items() <= most.items() and asked <= most.keys():
            return family
    return None


def requested(mig: MigConfiguration) -> Counter[int]:
    """How many of each profile are asked for, by profile id; what is 0 is left out."""
    found: Counter[int] = Counter()
    for each in mig.spec.profile_spec:
        found[each.id] += each.requested
    return +found


def ever(mig: MigConfiguration, family: Family | None) -> str:
    """Why this layout cannot exist on this GPU even when it is empty; "" if it can."""
    counts = requested(mig)
    if family is None:
        return _by_totals(mig, counts)
    b = board(family)
    for refusal in refusals(b, counts):
        return refusal.message
    if next(pack.arrangements(b, counts), None) is None:
        near = pack.nearest(b, counts)
        hint = f"; the nearest that can: {_words(family, near)}" if near else ""
        return f"{_words(family, counts)} cannot be placed together on this GPU{hint}"
    return ""


def now(mig: MigConfiguration, family: Family | None) -> str:
    """Why this layout does not fit beside what is on the GPU now; "" if it does. For a configuration of which nothing
    is applied.
    """
    counts = requested(mig)
    free = {each.id: each.available for each in mig.status.profile_status}
    names = {each.id: each.name for each in mig.spec.profile_spec}
    for profile, count in sorted(counts.items()):
        if profile in free and count > free[profile]:
            why = f"{count} of profile {names[profile]} are requested, {free[profile]} can be made now"
            return why + _blame(mig)
    if family is None or not free:
        return ""
    b = board(family)
    vector = tuple(sorted((p, n) for p, n in free.items() if p in b.profiles))
    known = _known(mig)
    states = [s for s in _states(family.name).get(vector, ()) if not known - Counter(p for p, _ in s)]
    if any(_beside(b, counts, state) for state in states or [()]):
        both = counts + known  # no state agrees with what the object says: at least what it lists must fit, too
        if states or (allowed(b, both) and next(pack.arrangements(b, both), None) is not None):
            return ""
    return f"{_words(family, counts)} cannot be placed beside what is on the GPU now" + _blame(mig)


def _blame(mig: MigConfiguration) -> str:
    there = [f"{each.name} {', '.join(each.instances)}" for each in mig.status.profile_status if each.instances]
    return f" (there are instances: {'; '.join(there)})" if there else ""


def _known(mig: MigConfiguration) -> Counter[int]:
    return Counter({each.id: len(each.instances or ()) for each in mig.status.profile_status})


def _beside(b: Board, counts: Mapping[int, int], state: tuple[Placed, ...]) -> bool:
    both = Counter(counts) + Counter(p for p, _ in state)
    return allowed(b, both) and next(pack.arrangements(b, both, state), None) is not None


def _by_totals(mig: MigConfiguration, counts: Counter[int]) -> str:
    """For a GPU whose table nobody has: the driver's totals, and compute slices as profile names give them."""
    totals = {each.id: each.total for each in mig.status.profile_status}
    names = {each.id: each.name for each in mig.spec.profile_spec} | {p.id: p.name for p in mig.status.profile_status}
    if not totals:
        return ""
    for profile, count in sorted(counts.items()):
        if count > totals.get(profile, 0):
            return f"{count} of profile {names[profile]} are requested, {totals.get(profile, 0)} fit on this GPU"
    slices = {profile: _slices(name) for profile, name in names.items()}
    most = max(slices[profile] * total for profile, total in totals.items())
    asked = sum(slices[profile] * count for profile, count in counts.items())
    return f"{asked} compute slices are requested, this GPU has {most}" if asked > most > 0 else ""


def _slices(name: str) -> int:
    """7 of ``MIG 7g.40gb``; 0 where the name does not say."""
    word = name.removeprefix("MIG ").partition("g.")[0]
    return int(word) if word.isdecimal() else 0


def _words(family: Family, counts: Mapping[int, int]) -> str:
    return ", ".join(f"{n} x {family.by_id[p].name}" for p, n in sorted(counts.items()) if n)


@cache
def _states(name: str) -> dict[Vector, tuple[tuple[Placed, ...], ...]]:
    """Every placed geometry of a family by how many more of each profile it leaves room for (2,318 at most)."""
    b = board(catalog.family(name))
    every = sorted(b.masks)
    found: dict[Vector, list[tuple[Placed, ...]]] = {}
    todo: list[tuple[tuple[Placed, ...], int, int]] = [((), 0, 0)]
    while todo:
        placed, mask, first = todo.pop()
        found.setdefault(_room(b, placed, mask), []).append(placed)
        for n in range(first, len(every)):
            if not b.masks[every[n]] & mask:
                bigger = (*placed, every[n])
                if allowed(b, Counter(p for p, _ in bigger)):
                    todo.append((bigger, mask | b.masks[every[n]], n + 1))
    return {vector: tuple(states) for vector, states in found.items()}


def _room(b: Board, placed: tuple[Placed, ...], mask: int) -> Vector:
    """How many more of each profile alone can be made beside what is placed."""
    return tuple((profile, _more(b, placed, mask, profile)) for profile in sorted(b.profiles))


def _more(b: Board, placed: tuple[Placed, ...], mask: int, profile: int) -> int:
    counts, count = Counter(p for p, _ in placed), 0
    for start in sorted(b.starts[profile]):
        if not b.masks[profile, start] & mask:
            counts[profile] += 1
            if not allowed(b, counts):
                break
            mask |= b.masks[profile, start]
            count += 1
    return count
