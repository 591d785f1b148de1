"""Requests for compute instances against brute force: feasibility and least destruction, on every family."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from aliquot.core.config.select.instances import resolve
from aliquot.core.config.text.instance_request import parse_instance_request
from aliquot.core.model import catalog
from aliquot.core.model.actions import Create, DestroyCompute
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import ComputeInstance
from aliquot.core.planner import compute_instances
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import step
from aliquot.core.planner.verify import verify
from laws.oracle import compute_raw, mig_nodes, raw
from laws.oracle.compute_nodes import devices, gpu, inner, node
from laws.oracle.compute_raw import Device, Node
from support.selection import dice as dice_of
from support.selection import samples


def desired(family: catalog.Family, wanted: Counter[Device]) -> Desired:
    """Build the desired state as the user types it: devices by name and count."""
    texts = [f"{name}*{n}" for (_, name), n in wanted.items()]
    instances, problems = resolve(family, [parse_instance_request(text, 1, 1) for text in texts])
    assert not problems
    return Desired((DesiredGpu(mig_nodes.PCI, True, instances),), "oracle")


def request(dice: random.Random, family: str) -> Counter[Device]:
    """Return devices that fit together, some of them replaced, so that they often do not fit any more."""
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
        before = mig_nodes.node(gpu(table, now, held))
        desired_state = desired(table, wanted)
        got = plan(before, desired_state)
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
        assert verify(end, desired_state) == ()
        if devices(before.gpus[0]) == wanted and all(now.values()):
            assert got.actions == ()
            assert verify(before, desired_state) == ()


def test_two_compute_instances_each_in_two_gpu_instances() -> None:
    """Request: two 3g with 1c + 2c. Packed in the requested order, one of them was left over and led to three 3g."""
    table = catalog.family("a100-40gb")
    wanted = Counter({("3g.20gb", "2c.3g.20gb"): 2, ("3g.20gb", "1c.3g.20gb"): 2})
    got = plan(mig_nodes.node(gpu(table, {})), desired(table, wanted))
    assert (got.blockers, got.created) == ((), 2)


def test_one_more_goes_into_a_gpu_instance_that_has_room() -> None:
    table = catalog.family("a100-40gb")
    now: Node = {("3g.20gb", 0): frozenset([("1c.3g.20gb", 0)])}
    got = plan(mig_nodes.node(gpu(table, now)), desired(table, Counter({("3g.20gb", "1c.3g.20gb"): 2})))
    assert (got.blockers, got.created, len(got.actions)) == ((), 0, 1)


@pytest.mark.parametrize("held", [False, True])
def test_what_holds_already_is_left_alone(held: bool) -> None:
    # The node has two 3g with one 1c each. Packing would have put both into one.
    table = catalog.family("a100-40gb")
    now: Node = {("3g.20gb", start): frozenset([("1c.3g.20gb", 0)]) for start in (0, 4)}
    busy = frozenset((place, c) for place, parts in now.items() for c in parts) if held else frozenset()
    before = mig_nodes.node(gpu(table, now, busy))
    desired_state = desired(table, Counter({("3g.20gb", "1c.3g.20gb"): 2}))
    assert verify(before, desired_state) == ()
    got = plan(before, desired_state)
    assert (got.blockers, got.actions) == ((), ())


def test_a_refusal_names_what_was_asked() -> None:
    table = catalog.family("a100-40gb")
    got = plan(mig_nodes.node(gpu(table, {})), desired(table, Counter({("3g.20gb", "2c.3g.20gb"): 3})))
    assert "cannot hold 2c.3g.20gb:3" in got.blockers[0].message


def test_the_driver_chooses_the_slot_that_leaves_the_most() -> None:
    # Next to one at slot 2 of a 4g, the next goes to slot 3 and not to 0, where a 2c still fits.
    profile = catalog.family("a100-40gb").by_name["4g.20gb"]
    one = next(c for c in profile.compute if c.name == "1c.4g.20gb")
    chosen = compute_instances.driver_choice(profile, one, 1 << 2)
    assert chosen is not None
    assert chosen.start == compute_raw.chosen("a100-40gb", "4g.20gb", frozenset({(one.name, 2)}), one.name) == 3


@pytest.mark.parametrize("family", raw.families())
def test_drivers_that_place_compute_instances_themselves(family: str) -> None:
    # From every content of a GPU instance to every other: the change is possible exactly if some order of creations is,
    # and it destroys the fewest. The planner's steps lead there if the driver chooses as described.
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
