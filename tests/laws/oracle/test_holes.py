"""Free slices, fragmentation, and the gain of a better arrangement: against brute force over raw tables."""

from __future__ import annotations

import tracemalloc
from collections import Counter

import msgspec
import pytest

from aliquot.core.model import catalog
from aliquot.core.model.inventory import Mig
from aliquot.core.planner import fragmentation
from aliquot.core.planner.fragmentation import Fragmentation, find_fragmentation
from laws.oracle import mig_nodes, raw
from support.selection import dice, samples

FAMILIES = ("a100-40gb", "a30-24gb", "h100-80gb-sxm", "rtx-pro-6000-96gb")
SAMPLES = samples(60)
PLANNER = [tracemalloc.Filter(True, "*/core/planner/*")]


def measured(
    family: str, now: raw.State, held: raw.State = frozenset(), wanted: list[str] | None = None
) -> Fragmentation:
    inventory = mig_nodes.node(mig_nodes.gpu(catalog.family(family), now, held))
    found = find_fragmentation(inventory, inventory.gpus[0], wanted)
    assert found is not None
    return found


def most(family: str, profile: str, now: raw.State, fixed: raw.State) -> int:
    """Return the maximum of a profile in a state that contains ``fixed`` and as many of each other profile as now."""
    have = Counter(name for name, _ in now)
    others = {name: n for name, n in have.items() if name != profile}
    found = [
        Counter(name for name, _ in state)
        for state in raw.states(family)
        if fixed <= state and {n: c for n, c in Counter(name for name, _ in state).items() if n != profile} == others
    ]
    return max(counts[profile] for counts in found) - have[profile]


@pytest.mark.parametrize("family", FAMILIES)
def test_rooms_and_holes_are_those_of_brute_force(family: str) -> None:
    pick = dice(f"holes {family}")
    every = raw.states(family)
    doc = raw.table(family)
    for now in pick.sample(every, min(SAMPLES, len(every))):
        held = frozenset(place for place in now if pick.random() < 0.4)
        names = [p["name"] for p in doc["profiles"]]
        wanted = pick.sample(names, pick.randint(1, 3))
        found = measured(family, now, held, wanted)
        taken = {s for place in now for s in raw.slices(doc, place)}
        free = set(range(doc["geometry"]["memory_slices"])) - taken
        assert set(found.free) == free
        reach: dict[str, set[int]] = {}
        for room in found.capacities:
            row = next(p for p in doc["profiles"] if p["name"] == room.profile)
            starts = [
                s
                for s in row["placements"]["starts"]
                if (room.profile, s) not in now and raw.legal(family, now | {(room.profile, s)})
            ]
            assert list(room.starts) == starts
            reach[room.profile] = {s for start in starts for s in raw.slices(doc, (room.profile, start))}
            assert room.now == most(family, room.profile, now, now)
            assert room.repacked == most(family, room.profile, now, held)
        assert set(found.stranded) == free - set().union(*(reach[name] for name in wanted))


def test_six_free_slices_that_no_3g_can_use() -> None:
    found = measured("a100-40gb", frozenset({("1g.5gb", 1), ("1g.5gb", 4)}), wanted=["3g.20gb"])
    assert found.free == found.stranded == (0, 2, 3, 5, 6, 7)
    row = next(r for r in found.capacities if r.profile == "3g.20gb")
    assert (row.now, row.repacked, row.lost) == (0, 1, 1)


def test_what_is_held_does_not_move() -> None:
    place = frozenset({("1g.5gb", 1), ("1g.5gb", 4)})
    row = next(r for r in measured("a100-40gb", place, held=place).capacities if r.profile == "3g.20gb")
    assert (row.now, row.repacked) == (0, 0)


def test_a_profile_that_the_gpu_lacks_wants_nothing_of_it() -> None:
    assert measured("a100-40gb", frozenset(), wanted=["1g.24gb"]).stranded == ()


def test_a_gpu_outside_mig_mode_has_no_holes() -> None:
    inventory = mig_nodes.node(mig_nodes.gpu(catalog.family("a100-40gb"), ()))
    assert find_fragmentation(inventory, msgspec.structs.replace(inventory.gpus[0], mig=Mig(True))) is None


def test_what_is_remembered_of_layouts_stays_below_16_mib() -> None:
    # The limit is the memory of a sample of layouts times the maximum number kept: a fleet can report ever new layouts.
    every = raw.states("a100-40gb")
    measured("a100-40gb", every[0])
    fragmentation._measure.cache_clear()
    tracemalloc.start()
    try:
        for now in every[:50]:
            measured("a100-40gb", now)
        kept = fragmentation._measure.cache_info()
        size = sum(each.size for each in tracemalloc.take_snapshot().filter_traces(PLANNER).statistics("filename"))
    finally:
        tracemalloc.stop()
    assert kept.currsize == 50
    assert size / kept.currsize * (kept.maxsize or 0) < 16 << 20
