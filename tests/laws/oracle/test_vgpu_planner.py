"""The vGPU planner against brute force: feasibility, and the fewest vGPUs destroyed, held ones last."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import combinations_with_replacement, pairwise

import pytest

import support.vgpufactory as factory
from aliquot.core.model.actions import DestroyVgpu
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import step
from aliquot.core.planner.verify import verify
from laws.oracle import raw, vgpu_nodes, vgpu_raw
from support.selection import parts

INSTANCES = {
    "rtx-pro-6000-blackwell-server-edition": (("1g.24gb+gfx", 0), ("1g.24gb+gfx", 3), ("1g.24gb+gfx", 6)),
}


def check(
    product: str,
    mode: str,
    state: vgpu_raw.State,
    held: frozenset[int],
    wanted: Counter[str],
    placed: tuple[tuple[str, int], ...] = (),
    ids: tuple[int, ...] = (),
) -> str:
    """Check one plan: feasible if the oracle reports so, at the oracle's cost, and legal at every step. Return the
    result.
    """
    of = vgpu_nodes.gpu(product, mode, placed, ids)
    inventory = vgpu_nodes.at(of, state, held)
    desired = vgpu_nodes.desired_state(of, mode, wanted, own_instances=not placed)
    got = plan(inventory, desired)
    rows = inventory.gpus[0].instances
    instances = tuple((i.id, i.profile_id) for i in rows)
    cost = vgpu_raw.least(product, mode, state, held, wanted, instances)
    if cost is None:
        assert got.blockers, (state, wanted)
        rules = {"equal": {"EQUAL_SIZE", "MAX_VGPUS"}, "mixed": {"MIXED_SIZE"}, "mig": {"NO_INSTANCE"}}
        assert {b.rule for b in got.blockers} <= rules[mode], (wanted, got.blockers)
        assert got.actions == ()
        return "impossible"
    if cost[0]:
        assert [b.rule for b in got.blockers] == ["HELD"], (state, wanted, got.blockers)
        assert got.blockers[0].holders
        return "held"
    assert not got.blockers, (state, held, wanted, got.blockers)
    destroyed = [a for a in got.actions if isinstance(a, DestroyVgpu)]
    assert len(destroyed) == cost[1], (state, wanted)
    assert not {a.function for a in destroyed} & {factory.address(n) for n in held}
    assert vgpu_nodes.walk(product, mode, state, got, instances) == +wanted
    for action in got.actions:
        inventory = step(inventory, action)
    assert verify(inventory, desired) == ()
    return "possible"


def reachable(product: str, mode: str, names: list[str], depth: int) -> list[vgpu_raw.State]:
    """Return states that creations of these types can lead to, with gaps: each also after one destruction."""
    seen: dict[frozenset[vgpu_raw.PlacedVgpu], vgpu_raw.State] = {frozenset(): ()}
    frontier: list[vgpu_raw.State] = [()]
    for _ in range(depth):
        grown = []
        for state in frontier:
            for short in names:
                made = vgpu_raw.create(product, mode, state, short)
                bigger = (*state, made) if made is not None else state
                if frozenset(bigger) not in seen:
                    seen[frozenset(bigger)] = bigger
                    grown.append(bigger)
                for gap in range(len(bigger)):
                    fewer = bigger[:gap] + bigger[gap + 1 :]
                    seen.setdefault(frozenset(fewer), fewer)
        frontier = grown
    return list(seen.values())


@cache
def one_size(product: str) -> tuple[vgpu_raw.State, ...]:
    """Return every state of up to four vGPUs in equal-size mode, including the empty one."""
    sizes: dict[int, list[str]] = {}
    for short in vgpu_raw.types(product):
        sizes.setdefault(vgpu_raw.make_gpu(product)["by_short"][short]["fb_mib"], []).append(short)
    out: list[vgpu_raw.State] = [()]
    for names in sizes.values():
        for count in range(1, 5):
            for some in combinations_with_replacement(names, count):
                state: vgpu_raw.State = ()
                for short in some:
                    made = vgpu_raw.create(product, "equal", state, short)
                    state = (*state, made) if made is not None else state
                out.append(state)
    return tuple(dict.fromkeys(out))


@pytest.mark.parametrize("part", parts(4))
def test_every_small_equal_size_state_of_an_a2_against_every_other(part: int) -> None:
    # A2: 115 states of up to four vGPUs of any series, each requested from each, with some of the vGPUs held.
    dice = random.Random(part)
    states = one_size("a2")
    assert len(states) == 115
    for state in states[part::4]:
        for goal in states[1:]:
            held = frozenset(n for n in range(len(state)) if dice.random() < 0.15)
            assert check("a2", "equal", state, held, Counter(s.type for s in goal)) != "impossible"


def test_two_sizes_and_more_than_the_most() -> None:
    # A2: the planner refuses random requests for two types exactly if the oracle does.
    dice = random.Random(2)
    outcomes: Counter[str] = Counter()
    for a, b in combinations_with_replacement(vgpu_raw.types("a2"), 2):
        wanted = Counter({a: dice.randint(1, 5)})
        wanted[b] += dice.randint(0, 3)
        outcomes[check("a2", "equal", (), frozenset(), wanted)] += 1
    assert min(outcomes[o] for o in ("possible", "impossible")) > 10


@pytest.mark.parametrize("part", parts(4))
def test_every_mixed_size_state_of_an_a2_against_every_request(part: int) -> None:
    # A2 with 4Q, 8Q and 16Q: every reachable set of places, against every multiset of up to 20 GiB.
    names = ["A2-4Q", "A2-8Q", "A2-16Q"]
    states = reachable("a2", "mixed", names, 4)
    requests = [Counter({"A2-4Q": a, "A2-8Q": b, "A2-16Q": c}) for a in range(6) for b in range(3) for c in range(2)]
    requests = [+w for w in requests if 0 < w["A2-4Q"] * 4 + w["A2-8Q"] * 8 + w["A2-16Q"] * 16 <= 20]
    dice = random.Random(part)
    for state in states[part::4]:
        for wanted in requests:
            held = frozenset(n for n in range(len(state)) if dice.random() < 0.1)
            check("a2", "mixed", state, held, wanted)


def test_as_many_as_the_table_says_and_not_one_more() -> None:
    # For every type of some products: its maximum is feasible on an empty GPU, one more is not.
    for product in ("a2", "a16", "l4", "l40s", "a40", "tesla-t4"):
        doc = vgpu_raw.make_gpu(product)
        for short in vgpu_raw.types(product):
            most = doc["by_short"][short]["max"]
            of = vgpu_nodes.gpu(product, "equal") if doc["sriov"]["capable"] else factory.gpu(doc["name"])
            node = factory.node(of)
            fine = plan(node, factory.desired_state(of, {short: most}))
            more = plan(node, factory.desired_state(of, {short: most + 1}))
            assert not fine.blockers, (product, short, fine.blockers)
            assert [b.rule for b in more.blockers] == ["MAX_VGPUS"], (product, short)
            assert more.blockers[0].suggestion is not None
            assert f"{short}*{most}" in more.blockers[0].suggestion or most == 1


@pytest.mark.parametrize("product", ["a2", "l4", "l40s"])
def test_mixed_sizes(product: str) -> None:
    # States that creations of four sizes (and one destruction) can lead to, against random requests.
    dice = random.Random(product)
    names = [s for s in vgpu_raw.types(product) if s.endswith("Q")]
    names = dice.sample(names, min(4, len(names)))
    states = reachable(product, "mixed", names, 4)
    outcomes: Counter[str] = Counter()
    for state in dice.sample(states, min(len(states), 120)):
        for _ in range(4):
            wanted = Counter(dice.choice(names) for _ in range(dice.randint(1, 5)))
            held = frozenset(n for n in range(len(state)) if dice.random() < 0.2)
            outcomes[check(product, "mixed", state, held, wanted)] += 1
    assert outcomes["possible"] > 50
    assert outcomes["held"] > 10


def test_mixed_sizes_are_refused_exactly_when_no_order_ends_complete() -> None:
    # L40S: random requests that fill the board. Sizes whose sum fits are not always feasible.
    dice = random.Random(48)
    names = [s for s in vgpu_raw.types("l40s") if s.endswith("Q") and not s.endswith(("-1Q", "-48Q"))]
    doc = vgpu_raw.make_gpu("l40s")
    outcomes: Counter[str] = Counter()
    for _ in range(150):
        wanted: Counter[str] = Counter()
        while sum(vgpu_raw.gib(doc, s) * n for s, n in wanted.items()) < dice.choice((36, 44, 48)):
            wanted[dice.choice(names)] += 1
        if wanted.total() <= 9:
            outcomes[check("l40s", "mixed", (), frozenset(), wanted)] += 1
    assert outcomes["possible"] > 20
    assert outcomes["impossible"] > 20


def test_a_kept_vgpu_is_destroyed_only_where_no_order_works() -> None:
    # A vGPU of 4 GiB at place 20 leaves no place for one of 24 next to another at 44: exactly one of them moves.
    state = (vgpu_raw.PlacedVgpu("L40S-4Q", 20), vgpu_raw.PlacedVgpu("L40S-4Q", 44))
    wanted = Counter({"L40S-4Q": 2, "L40S-24Q": 1})
    assert vgpu_raw.least("l40s", "mixed", state, frozenset(), wanted) == (0, 1)
    assert check("l40s", "mixed", state, frozenset(), wanted) == "possible"
    assert check("l40s", "mixed", state, frozenset({0}), wanted) == "possible"
    assert check("l40s", "mixed", state, frozenset({0, 1}), wanted) == "held"


@pytest.mark.parametrize("half", range(2))
def test_time_sliced_inside_gpu_instances(half: int) -> None:
    # RTX PRO 6000: three quarters with vGPUs of any sizes in them, against random requests for the same instances.
    product = "rtx-pro-6000-blackwell-server-edition"
    dice = random.Random(half)
    doc = vgpu_raw.make_gpu(product)
    names = [
        s
        for s in vgpu_raw.types(product, "mig-backed")
        if s.startswith("DC-1-") and s[5:] in ("2Q", "8Q", "8C", "12Q", "24Q")
    ]
    ids = (3, 4, 5)
    instances = tuple((n, 47) for n in ids)
    outcomes: Counter[str] = Counter()
    for _ in range(150):
        state: vgpu_raw.State = ()
        for _ in range(dice.randint(0, 6)):
            made = vgpu_raw.create(product, "mig", state, dice.choice(names), instances)
            state = (*state, made) if made is not None else state
        state = tuple(s for s in state if dice.random() < 0.8)
        held = frozenset(n for n in range(len(state)) if dice.random() < 0.15)
        wanted = Counter(dice.choice(names) for _ in range(dice.randint(1, 6)))
        assert all(doc["by_short"][s]["mig"]["gi_profile_id"] == 47 for s in wanted)
        outcomes[check(product, "mig", state, held, wanted, INSTANCES[product], ids)] += 1
    assert min(outcomes[o] for o in ("possible", "impossible", "held")) > 5


FAMILIES = {
    "a30": "a30-24gb",
    "a100-pcie-40gb": "a100-40gb",
    "h100-pcie": "h100-80gb-pcie",
    "rtx-pro-6000-blackwell-server-edition": "rtx-pro-6000-96gb",
}


@pytest.mark.slow
@pytest.mark.parametrize("product", FAMILIES)
def test_gpu_instances_and_their_vgpus_are_weighed_together(product: str) -> None:
    # Random GPU instances with vGPUs in them, against random MIG-backed requests: the plan destroys the fewest of both.
    dice = random.Random(product)
    family = FAMILIES[product]
    doc = raw.table(family)
    profile = {p["name"]: p["id"] for p in doc["profiles"]}
    units = doc["geometry"]["memory_slices"]
    size = {p["name"]: p["placements"]["size"] for p in doc["profiles"]}
    names = vgpu_raw.types(product, "mig-backed")
    rows = vgpu_raw.make_gpu(product)["by_short"]
    usable = {rows[n]["mig"]["profile"] for n in names}
    states = [s for s in raw.states(family) if all(p in usable for p, _ in s)]

    def number(place: tuple[str, int]) -> int:
        return int(units // size[place[0]] - 1 + place[1] // size[place[0]])

    outcomes: Counter[str] = Counter()
    for _ in range(120):
        now = dice.choice(states)
        placed: dict[tuple[str, int], list[tuple[str, bool]]] = {}
        for place in sorted(now):
            fitting = [n for n in names if rows[n]["mig"]["profile"] == place[0]]
            short = dice.choice(fitting)
            most = rows[short]["mig"]["max_per_gi"] if dice.random() < 0.7 else 0
            placed[place] = [(short, dice.random() < 0.2) for _ in range(min(most, dice.randint(1, 3)))]
        wanted = Counter(dice.choice(names) for _ in range(dice.randint(1, 4)))
        outcomes[joint(product, family, now, placed, wanted, profile, number)] += 1
    assert outcomes["possible"] > 15
    assert outcomes["held"] > 5


def joint(
    product: str,
    family: str,
    now: raw.State,
    placed: dict[tuple[str, int], list[tuple[str, bool]]],
    wanted: Counter[str],
    profile: dict[str, int],
    number: Callable[[tuple[str, int]], int],
) -> str:
    places = tuple(sorted(now))
    of = vgpu_nodes.gpu(product, "mig", places, tuple(map(number, places)))
    flat = [(vgpu_raw.PlacedVgpu(short, number(p)), held) for p in places for short, held in placed[p]]
    busy = frozenset(n for n, (_, held) in enumerate(flat) if held)
    inventory = vgpu_nodes.at(of, tuple(placed for placed, _ in flat), busy)
    desired = vgpu_nodes.desired_state(of, "mig", wanted)
    got = plan(inventory, desired)
    needed: Counter[str] = Counter()
    for size_of in {
        (t["mig"]["profile"], t["fb_mib"]) for t in map(vgpu_raw.make_gpu(product)["by_short"].get, wanted)
    }:
        same = [s for s in wanted if _key(product, s) == size_of]
        most = vgpu_raw.make_gpu(product)["by_short"][same[0]]["mig"]["max_per_gi"]
        needed[size_of[0]] += -(-sum(wanted[s] for s in same) // most)
    targets = raw.by_geometry(family).get(tuple(sorted(needed.items())), ())
    cost = vgpu_raw.joint(product, now, placed, wanted, targets, profile, number)
    if cost is None:
        assert {b.rule for b in got.blockers} <= {"NO_INSTANCE", "MAX_VGPUS"}, got.blockers
        assert got.blockers
        return "impossible"
    if cost[0]:
        assert [b.rule for b in got.blockers] == ["HELD"], (now, placed, wanted, got.blockers)
        return "held"
    assert not got.blockers, (now, placed, wanted, got.blockers)
    assert got.destroyed == cost[1], (now, placed, wanted)
    for action in got.actions:
        inventory = step(inventory, action)
    assert verify(inventory, desired) == ()
    return "possible"


def _key(product: str, short: str) -> tuple[str, int]:
    row = vgpu_raw.make_gpu(product)["by_short"][short]
    return row["mig"]["profile"], row["fb_mib"]


def test_places_of_one_size_never_overlap() -> None:
    # The search over mixed sizes relies on it.
    for file in sorted(vgpu_raw.CATALOG.glob("*.yaml")):
        doc = vgpu_raw.make_gpu(file.stem)
        for short in vgpu_raw.types(file.stem):
            size, places = vgpu_raw.gib(doc, short), doc["by_short"][short].get("mixed_placements", [])
            assert places == sorted(places), (file.stem, short)
            assert all(b - a >= size for a, b in pairwise(places)), (file.stem, short)
