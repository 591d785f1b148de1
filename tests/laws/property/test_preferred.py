"""Choices of devices against every possible choice on small nodes: the result has the least cost."""

from __future__ import annotations

from itertools import combinations
from typing import get_args

from hypothesis import example, given
from hypothesis import strategies as st

from aliquot.kubernetes.device_plugin.preferred_allocation import AllocationPolicy, preferred
from aliquot.kubernetes.gpu.device_resources import ResourceDevice
from support.selection import laws

Case = tuple[list[ResourceDevice], set[str], set[str], int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Draw at most nine devices on at most four GPUs and three NUMA nodes, some of them free, some mandatory."""
    numa = draw(st.lists(st.sampled_from([None, 0, 1]), min_size=1, max_size=4))
    homes = draw(st.lists(st.integers(0, len(numa) - 1), min_size=1, max_size=9))
    healthy = draw(st.lists(st.booleans(), min_size=len(homes), max_size=len(homes)))
    found = [
        ResourceDevice(f"d{n}", f"gpu{home}", (), f"{home}:{n}", numa[home], well or draw(st.booleans()))
        for n, (home, well) in enumerate(zip(homes, healthy, strict=True))
    ]
    free = set(draw(st.lists(st.sampled_from([d.id for d in found]))))
    must = set(draw(st.lists(st.sampled_from(sorted(free)), max_size=3))) if free else set()
    return found, free, must, draw(st.integers(len(must), len(found)))


def cost(
    policy: AllocationPolicy, devices: list[ResourceDevice], free: set[str], must: set[str], chosen: set[str]
) -> tuple[int, ...]:
    """Return the cost of a choice: an independent, direct restatement of the policies."""
    gpus: dict[str, list[ResourceDevice]] = {}
    for device in devices:
        gpus.setdefault(device.gpu, []).append(device)
    mine = {g: [d for d in found if d.id in chosen] for g, found in gpus.items()}
    touched = [g for g, found in mine.items() if found]
    used = {g: sum(d.healthy for d in found if d.id not in free | must) for g, found in gpus.items()}
    open_ids = {d.id for d in devices if d.healthy and d.id in free and d.id not in must}
    nodes = {gpus[g][0].numa for g in touched}
    fullness = sum(d.id in open_ids for d in devices if gpus[d.gpu][0].numa in nodes)
    order = sum(place * len(mine[g]) for place, g in enumerate(gpus))
    if policy == "distributed":
        crowding = sum(used[g] + n for g in touched for n in range(len(mine[g])))
        return (crowding, len(nodes), fullness, order)
    opened = sum(not used[g] and not any(d.id in must for d in gpus[g]) for g in touched)
    left = sum(sum(d.id in open_ids | must for d in gpus[g]) - len(mine[g]) for g in touched)
    company = -sum(used[g] * len(mine[g]) for g in touched)
    return (len(nodes), opened, len(touched), company, fullness, left, order)


@laws(500)
@given(cases(), st.sampled_from(get_args(AllocationPolicy)))
@example(
    ([ResourceDevice(f"d{n}", f"gpu{n // 2}", (), "0", 0) for n in range(6)], {"d1", "d3", "d4", "d5"}, set(), 2),
    "packed",
)
@example(
    ([ResourceDevice("a", "0", (), "0", None), ResourceDevice("b", "1", (), "1", None)], {"a", "b"}, {"b"}, 1), "packed"
)
def test_no_choice_is_better(case: Case, policy: AllocationPolicy) -> None:
    devices, free, must, size = case
    chosen = preferred(sorted(free, reverse=True), sorted(must), size, devices, policy)
    pool = {d.id for d in devices if d.id in must or (d.id in free and d.healthy)}
    assert len(set(chosen)) == len(chosen) == min(size, len(pool))
    assert must <= set(chosen) <= pool
    rest = sorted(pool - must)
    every = [must | set(more) for more in combinations(rest, len(chosen) - len(must))]
    least = min(cost(policy, devices, free, must, each) for each in every)
    assert cost(policy, devices, free, must, set(chosen)) == least


@laws(500)
@given(cases(), st.sampled_from(get_args(AllocationPolicy)))
def test_the_order_of_a_question_does_not_matter(case: Case, policy: AllocationPolicy) -> None:
    devices, free, must, size = case
    one = preferred(sorted(free), sorted(must), size, devices, policy)
    assert one == preferred(sorted(free, reverse=True), sorted(must, reverse=True), size, devices, policy)
