"""Mixed-size vGPUs in GPU instances: every mix that the driver's raw rules reach, and no other, is planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import combinations, combinations_with_replacement
from time import process_time

import pytest

import support.vgpufactory as factory
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.model.actions import Create, CreateVgpu, DestroyVgpu, SetMixedSize
from aliquot.core.model.desired import Desired, DesiredVgpu
from aliquot.core.model.inventory import Gpu, Vgpu
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.core.planner.semantics import step
from aliquot.core.planner.verify import verify
from aliquot.core.planner.vgpu.matching import PresentVgpu, WantedVgpu
from aliquot.core.planner.vgpu.mixed_instances import fewest_instances, instance_policy
from aliquot.core.planner.vgpu.placement_search import find_vgpu_target
from support.selection import dice as dice_of
from support.selection import samples
from system.sim.vgpu_oracle import table

PRO = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
FILE = "rtx-pro-6000-blackwell-server-edition"
QUARTER, HALF, FULL = 47, 35, 32


def rows(profile: int) -> dict[int, int]:
    """Return the largest number of vGPUs in one GPU instance by their size in GiB, from the reviewed file."""
    found = [r for r in table(FILE)["types"] if r["kind"] == "mig-backed" and r["mig"]["gi_profile_id"] == profile]
    return {r["fb_mib"] // 1024: r["mig"]["max_per_gi"] for r in found}


@cache
def reachable(profile: int, instances: int, sizes: tuple[int, ...] = ()) -> frozenset[tuple[int, ...]]:
    """Return every mix of sizes that some order of creations reaches, by trying each order of single creations."""
    region = max(rows(profile))
    most = {size: count for size, count in rows(profile).items() if not sizes or size in sizes}
    start = tuple(frozenset[int]() for _ in range(instances))
    todo: list[tuple[tuple[int, ...], tuple[frozenset[int], ...]]] = [((), start)]
    seen, mixes = set(), set()
    while todo:
        mix, taken = todo.pop()
        if (mix, taken) in seen:
            continue
        seen.add((mix, taken))
        mixes.add(mix)
        for size, count in most.items():
            choices = [(gi, region * n // count) for gi in range(instances) for n in range(count)]
            cells = [(gi, frozenset(range(at, at + size))) for gi, at in choices]
            free = next(((gi, c) for gi, c in cells if not c & taken[gi]), None)
            if free is not None:
                after = tuple(t | free[1] if n == free[0] else t for n, t in enumerate(taken))
                todo.append((tuple(sorted((*mix, size))), after))
    return frozenset(mixes)


def planned(profile: int, mix: tuple[int, ...]) -> int:
    """Return the number of GPU instances that the planner needs for a mix."""
    types = {t.size_gib: t for t in factory.table(PRO).types if t.profile_id == profile and t.id is not None}
    counts = [(types[size], mix.count(size)) for size in dict.fromkeys(mix)]
    return fewest_instances(factory.table(PRO), counts, {})[profile]


@pytest.mark.parametrize("profile", [QUARTER, HALF, FULL])
def test_one_gpu_instance_holds_exactly_what_the_driver_reaches(profile: int) -> None:
    sizes, region = sorted(rows(profile)), max(rows(profile))
    mixes = {m for n in range(1, 1 + region // sizes[0]) for m in combinations_with_replacement(sizes, n)}
    fitting = {m for m in mixes if sum(m) <= region}
    assert {m for m in fitting if planned(profile, m) == 1} == reachable(profile, 1) - {()}


def test_two_gpu_instances_hold_what_the_driver_reaches() -> None:
    sizes = (6, 8, 12, 24)
    mixes = [m for n in range(1, 9) for m in combinations_with_replacement(sizes, n) if sum(m) <= 48]
    assert {m for m in mixes if planned(QUARTER, m) <= 2} == reachable(QUARTER, 2, sizes) - {()}


@pytest.mark.parametrize(
    ("profile", "counts"),
    [
        (QUARTER, {6: 5, 4: 8, 3: 4, 2: 11}),
        (QUARTER, {6: 8, 4: 5, 3: 6, 2: 5}),
        (QUARTER, {12: 2, 8: 2, 6: 7, 4: 2, 3: 2}),
        (HALF, {24: 1, 16: 3, 12: 2}),
    ],
)
def test_a_tight_mix_is_decided_at_once(profile: int, counts: dict[int, int]) -> None:
    begin = process_time()
    mix = tuple(size for size, n in counts.items() for _ in range(n))
    assert (sum(mix), planned(profile, mix) * max(rows(profile))) == (96, 96)
    assert process_time() - begin < 2, "to try the orders of creation takes far longer"


def test_a_mix_saves_a_gpu_instance_per_size() -> None:
    of = factory.gpu(PRO, mig=True)
    counts = {"DC-1-12Q": 1, "DC-1-6Q": 2}
    assert [created(of, counts, mixed) for mixed in (False, True)] == [2, 1]


def test_vgpus_stay_beside_new_ones_of_another_size() -> None:
    of = after(factory.gpu(PRO, mig=True), plan_of(factory.gpu(PRO, mig=True), {"DC-1-12Q": 1}, True))
    assert of.mixed_size
    grown = plan_of(of, {"DC-1-12Q": 1, "DC-1-6Q": 1, "DC-1-4Q": 1}, True)
    assert [type(a) for a in grown.actions] == [CreateVgpu, CreateVgpu], "in the same GPU instance"
    assert {v.gpu_instance for v in after(of, grown).vgpus} == {of.instances[0].id}
    assert plan_of(after(of, grown), {"DC-1-12Q": 1, "DC-1-6Q": 1, "DC-1-4Q": 1}, True).actions == ()


def test_the_placement_inside_decides_whether_a_vgpu_can_stay() -> None:
    of = after(factory.gpu(PRO, mig=True), plan_of(factory.gpu(PRO, mig=True), {"DC-1-6Q": 1}, True))
    counts = {"DC-1-6Q": 1, "DC-1-8Q": 2}
    found = []
    for place in (0, 6):  # 8 GiB have the placements 0, 8 and 16: two of them are covered by 6 GiB at 6
        here = factory.replace(of, vgpus=(factory.replace(of.vgpus[0], placement=place),))
        change = plan_of(here, counts, True)
        assert (change.blockers, sum(isinstance(a, Create) for a in change.actions)) == ((), 0)
        found.append(sum(isinstance(a, DestroyVgpu) for a in change.actions))
    assert found == [0, 1]


def test_a_held_vgpu_keeps_its_gpu_instance_in_equal_size_mode() -> None:
    of = after(factory.gpu(PRO, mig=True), plan_of(factory.gpu(PRO, mig=True), {"DC-1-12Q": 1}, False))
    held = factory.replace(of, vgpus=(factory.replace(of.vgpus[0], holders=(factory.VM,)),))
    assert [b.rule for b in plan_of(held, {"DC-1-12Q": 1, "DC-1-6Q": 1}, True).blockers] == ["HELD"]
    switched = plan_of(of, {"DC-1-12Q": 1, "DC-1-6Q": 1}, True)
    assert [type(a) for a in switched.actions] == [DestroyVgpu, SetMixedSize, CreateVgpu, CreateVgpu]


def test_verify_and_undo_know_the_mode_of_gpu_instances() -> None:
    of = after(factory.gpu(PRO, mig=True), plan_of(factory.gpu(PRO, mig=True), {"DC-1-12Q": 1}, False))
    request = requested(of, {"DC-1-12Q": 1}, True)
    assert [d.kind for d in verify(factory.node(of), request)] == ["mixed-size"]
    back = make_restore_point(factory.node(of), [of.pci])
    mixed = after(of, plan(factory.node(of), request))
    assert verify(factory.node(mixed), request) == ()
    undone = after(mixed, plan(factory.node(mixed), back))
    assert not undone.mixed_size
    assert verify(factory.node(undone), back) == ()


def requested(of: Gpu, counts: dict[str, int], mixed: bool) -> Desired:
    """Return the desired state that a command line requests, with the GPU instances that the vGPUs need."""
    types = ",".join(f"{name}*{n}" for name, n in counts.items())
    return adhoc(["0"], [], factory.node(of), vgpu=[types], mixed_size=mixed)


def plan_of(of: Gpu, counts: dict[str, int], mixed: bool) -> Plan:
    return plan(factory.node(of), requested(of, counts, mixed))


def created(of: Gpu, counts: dict[str, int], mixed: bool) -> int:
    return sum(isinstance(a, Create) for a in plan_of(of, counts, mixed).actions)


def after(of: Gpu, wanted: Plan) -> Gpu:
    """Return the GPU after a plan that is not blocked."""
    assert wanted.blockers == ()
    node = factory.node(of)
    for action in wanted.actions:
        node = step(node, action)
    return node.gpus[0]


def test_what_stays_in_gpu_instances_is_the_most() -> None:
    dice, lossy = dice_of("vGPUs that stay in GPU instances"), 0
    types = {t.size_gib: t for t in factory.table(PRO).types if t.profile_id == QUARTER and t.short.endswith("Q")}
    for _ in range(samples(150)):
        present: list[tuple[int, int, int]] = []
        for size, instance in ((dice.choice((6, 8, 12)), dice.randint(0, 1)) for _ in range(dice.randint(0, 4))):
            at = dice.choice(range(0, 24, size))
            present += [(size, instance, at)] * fits((size, instance, at), present)
        wanted = tuple(sorted(dice.choice((6, 8, 12)) for _ in range(dice.randint(1, 5))))
        vgpus = [
            PresentVgpu(Vgpu(str(n), 0, "", placement=at), types[size], instance)
            for n, (size, instance, at) in enumerate(present)
        ]
        vgpus = [h._replace(vgpu=factory.replace(h.vgpu, type_id=h.type.id or 0)) for h in vgpus if h.type]
        items = [WantedVgpu(DesiredVgpu(types[size].id or 0, ""), types[size]) for size in wanted]
        policy = instance_policy(factory.table(PRO), [(0, QUARTER), (1, QUARTER)], {}, mixed=True)
        found = find_vgpu_target(policy, items, vgpus)
        fewest = fewest_lost(present, wanted)
        assert (None if found is None else found.cost[1]) == fewest, (present, wanted)
        lossy += bool(fewest)
    assert lossy


def fits(vgpu: tuple[int, int, int], others: Sequence[tuple[int, int, int]]) -> bool:
    size, instance, at = vgpu
    return all(i != instance or at + size <= start or start + s <= at for s, i, start in others)


def fewest_lost(present: Sequence[tuple[int, int, int]], wanted: tuple[int, ...]) -> int | None:
    """Return how many vGPUs must go, by trying each set that stays and each order of creations. None if none works."""
    for lost in range(len(present) + 1):
        for stay in combinations(present, len(present) - lost):
            missing = Counter(wanted)
            missing.subtract(size for size, _, _ in stay)
            if min(missing.values()) >= 0 and creatable(tuple(stay), tuple(sorted(missing.elements()))):
                return lost
    return None


def creatable(there: tuple[tuple[int, int, int], ...], missing: tuple[int, ...]) -> bool:
    if not missing:
        return True
    for size in set(missing):
        every = ((size, instance, at) for instance in (0, 1) for at in range(0, 24, size))
        free = next((each for each in every if fits(each, there)), None)
        rest = list(missing)
        rest.remove(size)
        if free is not None and creatable((*there, free), tuple(rest)):
            return True
    return False
