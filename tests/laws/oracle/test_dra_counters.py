"""Shared counters of DRA against the raw tables: the scheduler admits exactly the sets that the hardware accepts."""

from __future__ import annotations

from itertools import combinations

import pytest

from aliquot.core.model import catalog
from aliquot.kubernetes.dra.model.counters import FamilyCounters, family_counters
from laws.oracle import raw
from support.selection import dice, samples

EVERY_STATE = ("a30-24gb", "a100-40gb", "h100-80gb-sxm", "rtx-pro-6000-96gb", "rtx-pro-5000-48gb", "thor-gb10b")
"""Families with different rules, compared in every state. The others get pairs and random sets in the gate."""


def admitted(counters: FamilyCounters, ids: dict[str, int], state: raw.State) -> bool:
    """Add up as the allocator does: no counter of the set may go below zero."""
    left = dict(counters.totals)
    for name, start in state:
        for counter, count in counters.instances[ids[name], start].items():
            left[counter] -= count
    return min(left.values()) >= 0


def ids_of(family: str) -> dict[str, int]:
    return {p.name: p.id for p in catalog.family(family).profiles}


def every_state(family: str) -> set[raw.State]:
    """Return every set of placements that the counters admit, grown by one at a time."""
    counters, ids = family_counters(catalog.family(family)), ids_of(family)
    uses = {(name, start): counters.instances[ids[name], start] for name, start in placements(family)}
    seen: set[raw.State] = {frozenset()}
    frontier = [(frozenset[raw.Placed](), counters.totals)]
    while frontier:
        state, left = frontier.pop()
        for place, need in uses.items():
            bigger = state | {place}
            if bigger not in seen and all(left[counter] >= count for counter, count in need.items()):
                seen.add(bigger)
                frontier.append((bigger, left | {counter: left[counter] - count for counter, count in need.items()}))
    return seen


def placements(family: str) -> list[raw.Placed]:
    return [(p["name"], start) for p in raw.table(family)["profiles"] for start in p["placements"]["starts"]]


@pytest.mark.parametrize(
    "family", [f if f in EVERY_STATE else pytest.param(f, marks=pytest.mark.long) for f in raw.families()]
)
def test_every_admitted_set_is_legal_and_every_legal_set_is_admitted(family: str) -> None:
    assert every_state(family) == set(raw.states(family))


@pytest.mark.parametrize("family", raw.families())
def test_pairs_and_random_sets(family: str) -> None:
    counters, ids, every = family_counters(catalog.family(family)), ids_of(family), placements(family)
    random = dice(f"{family} counters")
    larger = [
        tuple(random.sample(every, random.randint(3, min(6, len(every)))))
        for _ in range(samples(300))
        if len(every) > 3
    ]
    both = [0, 0]
    for chosen in (*combinations(every, 2), *larger):
        state = frozenset(chosen)
        legal = raw.legal(family, state)
        assert admitted(counters, ids, state) == legal, state
        both[legal] += 1
    assert both[0]
    assert both[1] or len(every) < 4


@pytest.mark.parametrize("family", EVERY_STATE)
def test_a_set_is_legal_if_each_two_of_it_are(family: str) -> None:
    # Therefore it is enough to leave out what an instance blocks that no counter knows of.
    every = placements(family)
    beside = {one: {two for two in every if two != one and raw.legal(family, frozenset({one, two}))} for one in every}
    states = set(raw.states(family))
    for state in states:
        joint = set(every).intersection(*(beside[place] for place in state))
        assert all(state | {place} in states for place in joint), state


@pytest.mark.parametrize("family", raw.families())
def test_counters_are_within_the_limits_of_the_api(family: str) -> None:
    # 1.34 counts all sets of a slice together: at least two GPUs fit into one.
    counters = family_counters(catalog.family(family))
    assert len(counters.totals) <= 16
    for uses in counters.instances.values():
        assert 0 < len(uses) <= 32
        assert uses.keys() <= counters.totals.keys()
        assert all(0 < count <= counters.totals[name] for name, count in uses.items())
