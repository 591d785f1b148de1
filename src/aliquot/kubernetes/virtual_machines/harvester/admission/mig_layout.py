"""The check whether a GPU can have the geometry of a MigConfiguration, by placement tables instead of counts.

The object does not record the placements of instances that others created by hand. It records how many more of each
profile can be created (``available``), which leaves few possible layouts. A request is rejected only if it fits beside
none of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import cache

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family
from aliquot.core.planner import placement_search as pack
from aliquot.core.planner.placement_table import PlacedInstance, PlacementTable, compiled_table
from aliquot.core.planner.rules import allowed, refusals
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice

CapacityVector = tuple[tuple[int, int], ...]
"""(profile id, how many more of it can be created), ascending."""


def family_of(mig: MigConfiguration, function: PCIDevice | None) -> Family | None:
    """Return the geometry table of the GPU; None if no table of its PCI id matches the totals that its driver
    reported.
    """
    found = _family_names(function)
    totals = {each.id: each.total for each in mig.status.profile_status}
    requested = {each.id for each in mig.spec.profile_spec}
    for name in dict.fromkeys(found):
        family = catalog.family(name)
        maxima = {p.id: p.max_instances for p in family.profiles}
        if totals.items() <= maxima.items() and requested <= maxima.keys():
            return family
    return None


def supports_mig(function: PCIDevice | None) -> bool:
    """Report whether a GPU is known to support MIG, by its PCI id."""
    return bool(_family_names(function))


def _family_names(function: PCIDevice | None) -> list[str]:
    if function is None:
        return []
    device = f"0x{function.status.device_id}{function.status.vendor_id}".lower()
    return [d.mig_family for d in catalog.devices() if d.pci_device.lower() == device and d.mig_family]


def requested_counts(mig: MigConfiguration) -> Counter[int]:
    """Return the requested instances by profile id, without zeros."""
    found: Counter[int] = Counter()
    for each in mig.spec.profile_spec:
        found[each.id] += each.requested
    return +found


def why_impossible(mig: MigConfiguration, family: Family | None) -> str:
    """Return why this geometry cannot exist even on the empty GPU; "" if it can."""
    counts = requested_counts(mig)
    if family is None:
        return _by_totals(mig, counts)
    table = compiled_table(family)
    for refusal in refusals(table, counts):
        return refusal.message
    if next(pack.arrangements(table, counts), None) is None:
        near = pack.nearest(table, counts)
        hint = f"; the nearest valid one: {_counts_text(family, near)}" if near else ""
        return f"{_counts_text(family, counts)} cannot be placed together on this GPU{hint}"
    return ""


def why_not_now(mig: MigConfiguration, family: Family | None) -> str:
    """Return why this geometry does not fit beside the existing instances; "" if it does.

    Only for a configuration of which nothing is applied.
    """
    counts = requested_counts(mig)
    free = {each.id: each.available for each in mig.status.profile_status}
    names = {each.id: each.name for each in mig.spec.profile_spec}
    for profile, count in sorted(counts.items()):
        if profile in free and count > free[profile]:
            why = f"{count} of profile {names[profile]} are requested, {free[profile]} can be created now"
            return why + _existing_text(mig)
    if family is None or not free:
        return ""
    table = compiled_table(family)
    vector = tuple(sorted((p, n) for p, n in free.items() if p in table.profiles))
    known = _tracked_counts(mig)
    states = [s for s in _layouts_by_capacity(family.name).get(vector, ()) if not known - Counter(p for p, _ in s)]
    if any(_fits_beside(table, counts, state) for state in states or [()]):
        both = counts + known  # no layout matches the object: at least the instances that it lists must fit, too
        if states or (allowed(table, both) and next(pack.arrangements(table, both), None) is not None):
            return ""
    return f"{_counts_text(family, counts)} cannot be placed beside what is on the GPU now" + _existing_text(mig)


def _existing_text(mig: MigConfiguration) -> str:
    existing = [f"{each.name} {', '.join(each.instances)}" for each in mig.status.profile_status if each.instances]
    return f" (existing instances: {'; '.join(existing)})" if existing else ""


def _tracked_counts(mig: MigConfiguration) -> Counter[int]:
    return Counter({each.id: len(each.instances or ()) for each in mig.status.profile_status})


def _fits_beside(table: PlacementTable, counts: Mapping[int, int], state: tuple[PlacedInstance, ...]) -> bool:
    both = Counter(counts) + Counter(p for p, _ in state)
    return allowed(table, both) and next(pack.arrangements(table, both, state), None) is not None


def _by_totals(mig: MigConfiguration, counts: Counter[int]) -> str:
    """Check a GPU without a table, by the driver's totals and the compute slices in the profile names."""
    totals = {each.id: each.total for each in mig.status.profile_status}
    names = {each.id: each.name for each in mig.spec.profile_spec} | {p.id: p.name for p in mig.status.profile_status}
    if not totals:
        return ""
    for profile, count in sorted(counts.items()):
        if count > totals.get(profile, 0):
            return f"{count} of profile {names[profile]} are requested, {totals.get(profile, 0)} fit on this GPU"
    slices = {profile: _slices(name) for profile, name in names.items()}
    limit = max(slices[profile] * total for profile, total in totals.items())
    requested = sum(slices[profile] * count for profile, count in counts.items())
    return f"{requested} compute slices are requested, this GPU has {limit}" if requested > limit > 0 else ""


def _slices(name: str) -> int:
    """Parse the compute slices: 7 for ``MIG 7g.40gb``; 0 for another form of name."""
    word = name.removeprefix("MIG ").partition("g.")[0]
    return int(word) if word.isdecimal() else 0


def _counts_text(family: Family, counts: Mapping[int, int]) -> str:
    return ", ".join(f"{n} x {family.by_id[p].name}" for p, n in sorted(counts.items()) if n)


@cache
def _layouts_by_capacity(name: str) -> dict[CapacityVector, tuple[tuple[PlacedInstance, ...], ...]]:
    """Return every placed geometry of a family, at most 2,318, by how many more of each profile fit beside it."""
    table = compiled_table(catalog.family(name))
    placements = sorted(table.masks)
    found: dict[CapacityVector, list[tuple[PlacedInstance, ...]]] = {}
    pending: list[tuple[tuple[PlacedInstance, ...], int, int]] = [((), 0, 0)]
    while pending:
        placed, mask, first = pending.pop()
        found.setdefault(_capacities(table, placed, mask), []).append(placed)
        for n in range(first, len(placements)):
            if not table.masks[placements[n]] & mask:
                bigger = (*placed, placements[n])
                if allowed(table, Counter(p for p, _ in bigger)):
                    pending.append((bigger, mask | table.masks[placements[n]], n + 1))
    return {vector: tuple(states) for vector, states in found.items()}


def _capacities(table: PlacementTable, placed: tuple[PlacedInstance, ...], mask: int) -> CapacityVector:
    """Return how many instances of each profile, taken alone, can be created beside the placed ones."""
    return tuple((profile, _creatable(table, placed, mask, profile)) for profile in sorted(table.profiles))


def _creatable(table: PlacementTable, placed: tuple[PlacedInstance, ...], mask: int, profile: int) -> int:
    counts, count = Counter(p for p, _ in placed), 0
    for start in sorted(table.starts[profile]):
        if not table.masks[profile, start] & mask:
            counts[profile] += 1
            if not allowed(table, counts):
                break
            mask |= table.masks[profile, start]
            count += 1
    return count
