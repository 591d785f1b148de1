"""Requests that add and remove, against brute force: feasibility and least destruction, on one GPU and several."""

from __future__ import annotations

import random
import shlex
import time
from collections import Counter
from collections.abc import Callable, Sequence

import msgspec
import pytest

from aliquot.core.config.load import load
from aliquot.core.config.select.instance_changes import add_and_remove, total
from aliquot.core.config.select.named_config import select
from aliquot.core.model import catalog
from aliquot.core.model.actions import Create, DestroyCompute, SetMode
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Gpu, Inventory, Mig
from aliquot.core.model.plan import Plan
from aliquot.core.planner.explain import explain
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import step
from aliquot.core.planner.verify import verify
from laws.oracle import change_raw, mig_nodes, raw
from laws.oracle.change_raw import Side
from laws.oracle.compute_nodes import devices, gpu, node
from laws.oracle.compute_raw import Device
from support.selection import dice as dice_of
from support.selection import samples

A100, A30, H100 = "a100-40gb", "a30-24gb", "h100-80gb-sxm"
replace = msgspec.structs.replace


def texts(wanted: Counter[str]) -> list[str]:
    return [f"{name}*{n}" for name, n in sorted(wanted.items())]


def named(wanted: Counter[Device]) -> Counter[str]:
    out: Counter[str] = Counter()
    for (_, name), n in wanted.items():
        out[name] += n
    return out


def walk(before: Inventory, got: Plan) -> Inventory:
    """Apply a plan by the meaning of its actions, each of which must be legal."""
    for action in got.actions:
        before = step(before, action)
    return before


def request(dice: random.Random, family: str, present: Counter[Device]) -> tuple[Counter[Device], Counter[Device]]:
    """Return a request that adds instances, removes existing ones, or does both. Nothing is in both parts."""
    every = [(p["name"], c["name"]) for p in raw.table(family)["profiles"] for c in p["compute_instances"]]
    remove = Counter(dice.sample(sorted(present.elements()), min(dice.randint(0, 2), present.total())))
    add = Counter(device for device in dice.choices(every, k=dice.randint(0, 2)) if device not in remove)
    return add, remove


@pytest.mark.slow
@pytest.mark.parametrize("family", raw.families())
def test_one_gpu_of_every_family(family: str) -> None:
    # Covers whole instances, compute instances, GPU instances without any, and holders.
    dice = dice_of(f"{family} changes")
    table = catalog.family(family)
    for _ in range(samples(150)):
        now, held = node(dice, family)
        before = mig_nodes.node(gpu(table, now, held))
        add, remove = request(dice, family, devices(before.gpus[0]))
        if not add and not remove:
            continue
        requested = add_and_remove(["0"], texts(named(add)), texts(named(remove)), before)
        got = plan(before, requested)
        least = change_raw.least(family, now, held, add, remove)
        case = now, held, add, remove, least, requested.failures, got.blockers
        if least is None or least[0]:
            assert got.blockers, case
            assert got.actions == (), case
            assert (got.blockers[0].rule == "HELD") == (least is not None), case
            continue
        assert not got.blockers, case
        inside = sum(isinstance(action, DestroyCompute) for action in got.actions)
        made = sum(isinstance(action, Create) for action in got.actions)
        assert (0, got.destroyed, inside, made) == least, (case, got.actions)
        end = walk(before, got)
        most = devices(before.gpus[0]) + add
        gone = most - devices(end.gpus[0])
        assert devices(end.gpus[0]) <= most, case
        assert gone <= remove, case
        assert all(profile in {p for (p, _), inner in now.items() if not inner} for profile, _ in remove - gone), case
        assert verify(end, requested) == (), case


@pytest.mark.parametrize("family", [A30, A100])
def test_at_least_is_met_by_what_is_there_and_the_rest_is_added(family: str) -> None:
    dice = dice_of(f"{family} at least")
    table = catalog.family(family)
    names = [p["name"] for p in raw.table(family)["profiles"]]
    for _ in range(samples(120)):
        now = dice.choice(raw.states(family))
        held = frozenset(place for place in now if dice.random() < 0.3)
        wanted = Counter(dice.choices(names, k=dice.randint(1, 3)))
        before = mig_nodes.node(mig_nodes.gpu(table, now, held))
        requested = at_least(wanted, before)
        there: Counter[str] = Counter(name for name, _ in now)
        least = Side(family, now, held).cheapest(Counter(there | wanted))
        got = plan(before, requested)
        case = now, held, wanted, least, got.blockers
        assert bool(got.blockers) == (least is None or least[0] > 0), case
        if not got.blockers:
            assert least is not None
            assert (got.destroyed, got.created) == (least[2], least[4]), case
            end = walk(before, got)
            assert Counter(i.profile for i in end.gpus[0].instances) == there | wanted, case
            assert verify(end, at_least(wanted, end)) == (), case
            assert not plan(end, at_least(wanted, end)).changes, case


@pytest.mark.parametrize("family", [A30, A100])
def test_the_instance_at_a_place_goes_and_no_other(family: str) -> None:
    dice = dice_of(f"{family} at a place")
    table = catalog.family(family)
    names = [p["name"] for p in raw.table(family)["profiles"]]
    for _ in range(samples(120)):
        now = dice.choice([state for state in raw.states(family) if state])
        held = frozenset(place for place in now if dice.random() < 0.3)
        gone = dice.choice(sorted(now))
        add = Counter(name for name in dice.choices(names, k=dice.randint(0, 2)) if name != gone[0])
        before = mig_nodes.node(mig_nodes.gpu(table, now, held))
        got = plan(before, add_and_remove(["0"], texts(add), [f"{gone[0]}@{gone[1]}"], before))
        there = Counter(name for name, _ in now - {gone})
        targets = raw.by_geometry(family).get(tuple(sorted((there + add).items())), ())
        least = min((raw.least(now, held, (end,)) for end in targets if gone not in end), default=None)
        case = now, held, gone, add, least, got.blockers
        assert bool(got.blockers) == (least is None or least[0] > 0), case
        if not got.blockers and least is not None:
            end = placed(walk(before, got).gpus[0])
            assert (got.destroyed, gone in end, end in targets) == (least[1], False, True), case


@pytest.mark.parametrize("family", [A30, A100])
def test_what_to_remove_is_the_least_and_makes_room(family: str) -> None:
    dice = dice_of(f"{family} room")
    table = catalog.family(family)
    names = [p["name"] for p in raw.table(family)["profiles"]]
    tried = 0
    for _ in range(samples(150)):
        now = dice.choice(raw.states(family))
        held = frozenset(place for place in now if dice.random() < 0.2)
        add = Counter(dice.choices(names, k=dice.randint(1, 2)))
        before = mig_nodes.node(mig_nodes.gpu(table, now, held))
        requested = add_and_remove(["0"], texts(add), [], before)
        least = min(
            (
                (len(gone & held), len(gone))
                for gone in raw.subsets(frozenset(place for place in now if place[0] not in add))
                if fits(family, now - gone, held - gone, add)
            ),
            default=None,
        )
        case = now, held, add, least, requested.failures
        if not requested.failures:
            if least is None or least[1]:  # there is room once held instances move: only the plan can refuse
                assert [b.rule for b in plan(before, requested).blockers] == ["HELD"], case
            continue
        tried += 1
        words = shlex.split(requested.failures[0].next_step or "")
        assert ("--remove" in words) == (least is not None), case
        if least is not None:
            typed = dict(zip(words[2::2], words[3::2], strict=True))
            again = add_and_remove(["0"], [typed["--add"]], [typed["--remove"]], before)
            got = plan(before, again)
            assert (not got.blockers, "--policy" in typed) == (not least[0], bool(least[0])), case
            removed = sum(int(part.rpartition(":")[2]) for part in typed["--remove"].split(","))
            assert removed == least[1], case
    assert tried


def fits(family: str, kept: raw.State, held: raw.State, add: Counter[str]) -> bool:
    """Report whether a state exists with the kept instances, the held ones in their place, and the added ones."""
    geometry = Counter(name for name, _ in kept) + add
    return any(held <= end for end in raw.by_geometry(family).get(tuple(sorted(geometry.items())), ()))


@pytest.mark.parametrize("family", [A30, A100])
def test_what_an_explanation_says_to_type_is_what_it_shows(family: str) -> None:
    dice = dice_of(f"{family} explanation")
    table = catalog.family(family)
    names = [p["name"] for p in raw.table(family)["profiles"]]
    for _ in range(samples(120)):
        now = dice.choice(raw.states(family))
        held = frozenset(place for place in now if dice.random() < 0.2)
        before = mig_nodes.node(mig_nodes.gpu(table, now, held))
        answer = explain(before, dice.choice(names), mig_nodes.PCI).answers[0]
        if answer.plan is not None:
            words = shlex.split(answer.next_step or "")
            typed = dict(zip(words[2::2], words[3::2], strict=True))
            remove = [typed["--remove"]] if "--remove" in typed else []
            requested = add_and_remove([typed["--gpu"]], [typed["--add"]], remove, before)
            got = plan(before, requested)
            case = now, held, answer
            assert (got.blockers, got.destroyed, got.created) == ((), answer.plan.destroyed, answer.plan.created), case
            assert placed(walk(before, got).gpus[0]) == placed(walk(before, answer.plan).gpus[0]), case


def at_least(wanted: Counter[str], node: Inventory) -> Desired:
    rows = ", ".join(f"{name}: {n}" for name, n in wanted.items())
    text = f"version: aliquot/v1\nconfigs:\n  c:\n    - gpus: all\n      mig: {{at-least: {{{rows}}}}}\n"
    return select(load(text, "f"), None, node)


def several(sides: Sequence[Side]) -> Inventory:
    gpus = []
    for n, side in enumerate(sides):
        made = mig_nodes.gpu(catalog.family(side.family), side.now or (), side.held, pci=f"0000:{n:02x}:00.0")
        mig = made.mig if side.now is not None else Mig(True, "disabled", "disabled")
        gpus.append(replace(made, index=n, mig=mig))
    return mig_nodes.node(*gpus)


def spent(before: Inventory, got: Plan) -> change_raw.Total:
    """Return the cost of a plan in the oracle's terms. Asserts that it destroys no held instance."""
    end = walk(before, got)
    rooms = [sum(raw.room(g.family or "", placed(g)) for g in node.gpus) for node in (before, end)]
    modes = sum(isinstance(action, SetMode) for action in got.actions)
    return 0, modes, got.destroyed, len(got.actions_by_gpu), got.created, rooms[0] - rooms[1]


def placed(found: Gpu) -> raw.State:
    return frozenset((i.profile, i.place.start) for i in found.instances)


def sides_of(dice: random.Random, families: Sequence[str]) -> list[Side]:
    sides = []
    for family in families:
        now = None if dice.random() < 0.2 else dice.choice(raw.states(family))
        sides.append(Side(family, now, frozenset(place for place in now or () if dice.random() < 0.3)))
    return sides


def test_a_gpu_in_mig_mode_goes_before_one_outside_it() -> None:
    sides = [Side(A30, None, frozenset()), Side(A30, frozenset(), frozenset())]
    add = Counter([raw.table(A30)["profiles"][-1]["name"]])
    before = several(sides)
    requested = add_and_remove(["all"], texts(add), [], before)
    compare(before, requested, change_raw.least_of_all(sides, add, Counter()), (sides, add))


@pytest.mark.parametrize("families", [(A30, A30, A30), (A100, A100), pytest.param((A100, A30), marks=pytest.mark.slow)])
def test_several_gpus(families: Sequence[str]) -> None:
    dice = dice_of(f"several {families}")
    names = [p["name"] for p in raw.table(families[0])["profiles"]]
    for _ in range(samples(120)):
        sides = sides_of(dice, families)
        present = sorted(name for side in sides for name, _ in side.now or ())
        remove = Counter(dice.sample(present, min(len(present), dice.randint(0, 2))))
        add = Counter(name for name in dice.choices(names, k=dice.randint(0, 3)) if name not in remove)
        if add or remove:
            before = several(sides)
            requested = add_and_remove(["all"], texts(add), texts(remove), before)
            compare(before, requested, change_raw.least_of_all(sides, add, remove), (sides, add, remove))


@pytest.mark.parametrize("families", [(A30, A30, A30), (A100, A100)])
def test_a_total_over_several_gpus(families: Sequence[str]) -> None:
    dice = dice_of(f"total {families}")
    names = [p["name"] for p in raw.table(families[0])["profiles"]]
    for _ in range(samples(60)):
        sides = sides_of(dice, families)
        wanted = Counter(dice.choices(names, k=dice.randint(1, 5)))
        before = several(sides)
        requested = total(["all"], texts(wanted), before)
        compare(before, requested, change_raw.least_of_all(sides, wanted, Counter(), replace=True), (sides, wanted))


def compare(before: Inventory, desired: Desired, least: change_raw.Total | None, case: object) -> None:
    got = plan(before, desired)
    if least is None or least[0]:
        assert got.blockers, (case, least)
        assert (got.blockers[0].rule == "HELD") == (least is not None), (case, least, got.blockers)
        return
    assert not got.blockers, (case, least, got.blockers)
    assert spent(before, got) == least, (case, got.actions)
    assert verify(walk(before, got), desired) == ()


def test_eight_gpus_of_seven_instances_take_no_time() -> None:
    # Each GPU differs, so that no result for an earlier one can be reused.
    sides = [Side(H100, frozenset(("1g.10gb", s) for s in range(7) if s != n)) for n in range(7)]
    sides.append(Side(H100, frozenset({("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb", 5)})))
    before = several(sides)
    cases: tuple[Callable[[], Desired], ...] = (
        lambda: add_and_remove(["all"], ["1g.10gb*8"], [], before),
        lambda: add_and_remove(["all"], ["2g.20gb,3g.40gb"], ["1g.10gb*8"], before),
        lambda: total(["all"], ["1g.10gb*20,2g.20gb*6,3g.40gb*4"], before),
    )
    for case in cases:
        case()  # compiles the tables
        began = time.process_time()
        assert not plan(before, case()).blockers
        assert time.process_time() - began < 0.3
