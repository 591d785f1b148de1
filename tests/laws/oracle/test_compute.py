"""Requests for compute instances against brute force: feasibility and least destruction, on every family."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
import pytest

from aliquot.core.config.select.instances import resolve
from aliquot.core.config.text.instance_request import parse_instance_request
from aliquot.core.model import catalog
from aliquot.core.model.actions import Create, DestroyCompute
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import ComputeInstance, Gpu, GpuInstance
from aliquot.core.planner import compute_instances
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import step
from aliquot.core.planner.verify import verify
from laws.oracle import compute_raw, raw, world
from laws.oracle.compute_raw import Device, Inner, Node
from support.selection import dice as dice_of
from support.selection import samples

replace = msgspec.structs.replace
Held = frozenset[tuple[raw.Placed, tuple[str, int]]]


def gpu(family: catalog.Family, now: Node, held: Held = frozenset()) -> Gpu:
    """A GPU with these compute instances in these GPU instances."""
    whole = world.gpu(family, now)

    def inside(instance: GpuInstance) -> GpuInstance:
        place = instance.profile, instance.place.start
        profile = family.by_id[instance.profile_id]
        made = []
        for n, (name, start) in enumerate(sorted(now[place], key=lambda c: c[1])):
            compute = next(c for c in profile.compute if c.name == name)
            holders = (world.PROCESS,) if (place, (name, start)) in held else ()
            made.append(ComputeInstance(n, name, compute.id, f"{start}:{compute.size}", holders=holders))
        busy = tuple(holder for c in made for holder in c.holders)
        return replace(instance, held=bool(busy), holders=busy, compute_instances=tuple(made))

    return replace(whole, instances=tuple(map(inside, whole.instances)))


def devices(found: Gpu) -> Counter[Device]:
    return Counter((i.profile, c.profile) for i in found.instances for c in i.compute_instances)


def desired(family: catalog.Family, wanted: Counter[Device]) -> Desired:
    """The request as it is typed: devices by name and count."""
    texts = [f"{name}*{n}" for (_, name), n in wanted.items()]
    instances, problems = resolve(family, [parse_instance_request(text, 1, 1) for text in texts])
    assert not problems
    return Desired((DesiredGpu(world.PCI, True, instances),), "oracle")


def inner(dice: random.Random, family: str, profile: str) -> Inner:
    return dice.choice(compute_raw.inners(family, profile))


def node(dice: random.Random, family: str) -> tuple[Node, Held]:
    """A random state in which some compute instances are held; some GPU instances have none at all."""
    now = {place: inner(dice, family, place[0]) for place in dice.choice(raw.states(family))}
    held = frozenset((place, c) for place, parts in now.items() for c in parts if dice.random() < 0.15)
    return now, held


def request(dice: random.Random, family: str) -> Counter[Device]:
    """Devices that fit together, of which some are replaced: often they do not fit any more."""
    wanted = Counter(
        (profile, name)
        for profile, start in dice.choice(raw.states(family))
        for name, _ in inner(dice, family, profile)
    )
    every = [(p["name"], c["name"]) for p in raw.table(family)["profiles"] for c in p["compute_instances"]]
    if dice.random() < 0.4:
        wanted[dice.choice(every)] += 1
    return wanted or Counter([dice.choice(every)])


@pytest.mark.slow
@pytest.mark.parametrize("family", raw.families())
def test_samples_of_every_family(family: str) -> None:
    dice = dice_of(f"{family} compute instances")
    table = catalog.family(family)
    for _ in range(samples(180)):
        (now, held), wanted = node(dice, family), request(dice, family)
        before = world.node(gpu(table, now, held))
        wish = desired(table, wanted)
        got = plan(before, wish)
        least = compute_raw.least(family, now, held, wanted)
        case = now, held, wanted, least
        if least is None or least[0]:
            assert got.blockers, case
            assert got.actions == (), case
            assert (got.blockers[0].rule == "HELD") == (least is not None), (case, got.blockers)
            continue
        assert not got.blockers, (case, got.blockers)
        inside = sum(isinstance(action, DestroyCompute) for action in got.actions)
        made = sum(isinstance(action, Create) for action in got.actions)
        assert (0, got.destroyed, inside, made) == least, (case, got.actions)
        end = before
        for action in got.actions:
            end = step(end, action)
        assert devices(end.gpus[0]) == wanted
        assert verify(end, wish) == ()
        if devices(before.gpus[0]) == wanted and all(now.values()):
            assert got.actions == ()
            assert verify(before, wish) == ()


def test_two_compute_instances_each_in_two_gpu_instances() -> None:
    """Two 3g with 1c + 2c: packed in the order asked, one of them stood alone and made it three 3g."""
    table = catalog.family("a100-40gb")
    wanted = Counter({("3g.20gb", "2c.3g.20gb"): 2, ("3g.20gb", "1c.3g.20gb"): 2})
    got = plan(world.node(gpu(table, {})), desired(table, wanted))
    assert (got.blockers, got.created) == ((), 2)


def test_one_more_goes_into_a_gpu_instance_that_has_room() -> None:
    table = catalog.family("a100-40gb")
    now: Node = {("3g.20gb", 0): frozenset([("1c.3g.20gb", 0)])}
    got = plan(world.node(gpu(table, now)), desired(table, Counter({("3g.20gb", "1c.3g.20gb"): 2})))
    assert (got.blockers, got.created, len(got.actions)) == ((), 0, 1)


@pytest.mark.parametrize("held", [False, True])
def test_what_holds_already_is_left_alone(held: bool) -> None:
    """Two 3g with one 1c each, where packing would have put both into one."""
    table = catalog.family("a100-40gb")
    now: Node = {("3g.20gb", start): frozenset([("1c.3g.20gb", 0)]) for start in (0, 4)}
    busy = frozenset((place, c) for place, parts in now.items() for c in parts) if held else frozenset()
    before = world.node(gpu(table, now, busy))
    wish = desired(table, Counter({("3g.20gb", "1c.3g.20gb"): 2}))
    assert verify(before, wish) == ()
    got = plan(before, wish)
    assert (got.blockers, got.actions) == ((), ())


def test_a_refusal_names_what_was_asked() -> None:
    table = catalog.family("a100-40gb")
    got = plan(world.node(gpu(table, {})), desired(table, Counter({("3g.20gb", "2c.3g.20gb"): 3})))
    assert "cannot hold 2c.3g.20gb:3" in got.blockers[0].message


def test_the_driver_chooses_the_slot_that_leaves_the_most() -> None:
    """Beside one at slot 2 of a 4g the next goes to 3, not to 0: there a 2c fits, yet."""
    profile = catalog.family("a100-40gb").by_name["4g.20gb"]
    one = next(c for c in profile.compute if c.name == "1c.4g.20gb")
    chosen = compute_instances.driver_choice(profile, one, 1 << 2)
    assert chosen is not None
    assert chosen.start == compute_raw.chosen("a100-40gb", "4g.20gb", frozenset({(one.name, 2)}), one.name) == 3


@pytest.mark.parametrize("family", raw.families())
def test_drivers_that_place_compute_instances_themselves(family: str) -> None:
    """From every content of a GPU instance to every other: possible exactly when some order of creations is, and the
    fewest are destroyed; the planner's steps lead there when the driver chooses as it does.
    """
    table = catalog.family(family).without_placed_compute
    dice = dice_of(f"{family} without placements")
    for profile in table.profiles:
        contents = compute_raw.inners(family, profile.name)
        for now in dice.sample(contents, min(len(contents), samples(8))):
            target, exact = dice.choice(contents), dice.random() < 0.5
            wanted = Counter(name for name, _ in target)
            present = [
                ComputeInstance(n, name, _id(profile, name), f"{start}:{_size(profile, name)}")
                for n, (name, start) in enumerate(sorted(now))
            ]
            slots = sorted((_id(profile, name), start) for name, start in target)
            starts = [start for _, start in slots] if exact else None
            got = compute_instances.change(profile, present, [kind for kind, _ in slots], starts)
            least = compute_raw.fewest_destroyed(family, profile.name, now, target, exact)
            assert (None if got is None else len(got.destroy)) == least, (profile.name, now, target, exact, got)
            if got is None:
                continue
            assert all(part.placement is None for part in got.create)
            end = {(c.profile, c.place.start) for c in present if c not in got.destroy}
            for part in got.create:
                start = compute_raw.chosen(family, profile.name, frozenset(end), part.profile)
                assert start is not None
                end.add((part.profile, start))
            assert Counter(name for name, _ in end) == wanted
            assert not exact or end == target


def _id(profile: catalog.Profile, name: str) -> int:
    return next(c.id for c in profile.compute if c.name == name)


def _size(profile: catalog.Profile, name: str) -> int:
    return next(c.size for c in profile.compute if c.name == name)
