"""Planning laws, on random nodes and desired states."""

from __future__ import annotations

import random
from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.config.export import export, export_native
from aliquot.core.config.formats.yaml_writer import to_yaml
from aliquot.core.config.load import load
from aliquot.core.config.select.command_line import adhoc
from aliquot.core.config.select.named_config import select
from aliquot.core.model import catalog
from aliquot.core.model.actions import Action, Create, CreateCompute, Destroy, DestroyCompute
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.encoding import encode
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan
from aliquot.core.planner.semantics import StepRefusedError, step
from aliquot.core.planner.verify import verify
from laws.oracle import mig_nodes, raw
from laws.property import strategies
from support.selection import laws

LAWS = laws(150)
replace = msgspec.structs.replace


def micro(action: Action) -> list[Action]:
    """Return the single driver calls of an action."""
    if isinstance(action, Destroy):
        inner: list[Action] = [
            DestroyCompute(gpu=action.gpu, reason="", instance=action.instance, compute_instance=c, profile="")
            for c in action.compute_instances
        ]
        return [*inner, replace(action, compute_instances=())]
    return [action]


def calls(inventory: Inventory, actions: tuple[Action, ...]) -> list[Inventory]:
    """Return the node after each single driver call of a plan, and before the first one."""
    states = [inventory]
    for action in actions:
        for single in micro(action):
            if isinstance(single, Create):
                states.append(step(states[-1], replace(single, compute=())))
                made = states[-1].gpu(single.gpu)
                instance = next(i for i in made.instances if i.placement == single.placement)
                for part in single.compute:
                    inner = CreateCompute(
                        gpu=single.gpu,
                        reason="",
                        instance=instance.id,
                        profile=part.profile,
                        profile_id=part.profile_id,
                        placement=part.placement,
                    )
                    states.append(step(states[-1], inner))
            else:
                states.append(step(states[-1], single))
    return states


def held(inventory: Inventory) -> set[tuple[str, int, str]]:
    return {(g.pci, i.profile_id, i.placement) for g in inventory.gpus for i in g.instances if i.held}


@LAWS
@given(strategies.cases(size=2))
def test_a_plan_ends_in_the_request_and_spares_the_held(case: tuple[Inventory, Desired]) -> None:
    inventory, desired = case
    got = plan(inventory, desired)
    if got.blockers:
        assert {b.rule for b in got.blockers} == {"HELD"}
        assert got.actions == ()
        return
    states = calls(inventory, got.actions)
    for state in states:
        assert held(inventory) <= held(state)
    assert verify(states[-1], desired) == ()
    assert plan(states[-1], desired).actions == ()


@LAWS
@given(st.sampled_from(strategies.FAMILIES), st.data())
def test_what_is_proposed_instead_works_and_loses_nothing_that_was_to_stay(family: str, data: st.DataObject) -> None:
    # To stay: the held instances, and as many of each profile as the request and the GPU have both.
    node = mig_nodes.node(data.draw(strategies.gpus(family)))
    gpu = node.gpus[0]
    profiles = catalog.family(family).profiles
    picked = data.draw(st.lists(st.sampled_from(profiles), min_size=1, max_size=4))
    requests = tuple(DesiredInstance(p.id, p.name, (p.default_compute.id,)) for p in picked)
    got = plan(node, Desired((DesiredGpu(gpu.pci, mig=True, instances=requests),)))
    if not got.blockers or got.blockers[0].suggestion is None:
        return
    instead = plan(node, adhoc([gpu.pci], [got.blockers[0].suggestion], node))
    assert not instead.blockers
    states = calls(node, instead.actions)
    assert all(held(node) <= held(state) for state in states)
    # An idle instance may move, where that destroys no more than the other ways.
    there, after = (Counter(i.profile_id for i in each.gpus[0].instances) for each in (node, states[-1]))
    picked_ids = Counter(p.id for p in picked)
    assert after >= there & picked_ids
    assert instead.created or picked_ids <= there


def test_nothing_is_proposed_that_loses_what_the_request_has() -> None:
    table = catalog.family("h100-80gb-sxm")
    placed = [("2g.20gb", 0), ("1g.10gb+me", 2), ("1g.20gb", 4), ("1g.20gb", 6)]
    node = mig_nodes.node(mig_nodes.gpu(table, placed, [("1g.20gb", 4)]))
    (blocker,) = plan(node, adhoc([node.gpus[0].pci], ["2g.20gb,3g.40gb"], node)).blockers
    # 3g.40gb and what is held fit only without the idle 2g.20gb, which the request has as well.
    assert blocker.suggestion is None


@LAWS
@given(st.sampled_from(strategies.DIVISIBLE), st.data())
def test_what_is_exported_is_there_already(family: str, data: st.DataObject) -> None:
    node = mig_nodes.node(data.draw(strategies.split_gpus(family)))
    for document, name in ((export(node), "current"), (export_native(node, "x"), "x")):
        desired = select(load(to_yaml(document), "f"), name, node)
        assert verify(node, desired) == ()
        got = plan(node, desired)
        assert (got.blockers, got.actions) == ((), ())


@LAWS
@given(strategies.cases(size=1))
def test_force_may_destroy_held_instances_but_only_when_it_must(case: tuple[Inventory, Desired]) -> None:
    inventory, desired = case
    gentle, forced = plan(inventory, desired), plan(inventory, desired, Policy("force"))
    assert not forced.blockers
    if not gentle.blockers:
        assert forced.actions == gentle.actions
    else:
        gone = {(a.profile_id, a.placement) for a in forced.actions if isinstance(a, Destroy)}
        inside = {a.instance for a in forced.actions if isinstance(a, DestroyCompute)}
        busy = [i for i in inventory.gpus[0].instances if i.held]
        assert any((i.profile_id, i.placement) in gone or i.id in inside for i in busy)


@LAWS
@given(strategies.cases(size=3), st.randoms(use_true_random=False))
def test_the_order_of_the_input_does_not_matter(case: tuple[Inventory, Desired], dice: random.Random) -> None:
    inventory, desired = case
    got = plan(inventory, desired)
    mixed = []
    for desired_gpu in desired.gpus:
        instances = list(desired_gpu.instances or ())
        dice.shuffle(instances)
        mixed.append(replace(desired_gpu, instances=tuple(instances)))
    dice.shuffle(mixed)
    again = plan(inventory, Desired(gpus=tuple(mixed), name="case"))
    assert [(a, getattr(a, "placement", "")) for a in again.actions] == [
        (a, getattr(a, "placement", "")) for a in got.actions
    ]


def test_the_reason_why_an_instance_goes_does_not_depend_on_the_order_either() -> None:
    gpu = mig_nodes.gpu(catalog.family("thor-gb10b"), [("3g.0gb", 0)])
    requests = (DesiredInstance(1001, "2g.0gb", (1,), 0), DesiredInstance(1010, "1g.0gb+gfx", (0,), 2))
    one, other = (
        plan(mig_nodes.node(gpu), Desired(gpus=(DesiredGpu(pci=gpu.pci, mig=True, instances=order),), name="case"))
        for order in (requests, requests[::-1])
    )
    assert one.actions
    assert one.actions == other.actions


@LAWS
@given(strategies.cases(size=2))
def test_a_plan_survives_json(case: tuple[Inventory, Desired]) -> None:
    got = plan(*case)
    assert msgspec.json.decode(encode(got), type=Plan) == got


@LAWS
@given(strategies.cases(size=2), st.data())
def test_cut_anywhere_replanned_and_finished_ends_the_same(
    case: tuple[Inventory, Desired], data: st.DataObject
) -> None:
    # The actions for each GPU are cut after any number of driver calls. A new plan from that state finishes the change.
    inventory, desired = case
    whole = plan(inventory, desired)
    if whole.blockers:
        return
    state = inventory
    for actions in whole.actions_by_gpu.values():
        prefixes = calls(state, actions)
        state = prefixes[data.draw(st.integers(0, len(prefixes) - 1))]
    rest = plan(state, desired)
    assert not rest.blockers
    end = state
    for after in calls(state, rest.actions):
        assert held(inventory) <= held(after)
        end = after
    assert verify(end, desired) == ()
    assert _shape(end) == _shape(calls(inventory, whole.actions)[-1])


def _shape(inventory: Inventory) -> list[tuple[str, int, str, list[int]]]:
    return sorted(
        (g.pci, i.profile_id, i.placement, sorted(c.profile_id for c in i.compute_instances))
        for g in inventory.gpus
        for i in g.instances
    )


@LAWS
@given(strategies.cases(size=1), st.data())
def test_step_refuses_what_the_tables_forbid(case: tuple[Inventory, Desired], data: st.DataObject) -> None:
    # For random create calls, ``step`` accepts exactly those that are legal by the raw tables.

    inventory, _ = case
    gpu = inventory.gpus[0]
    table = inventory.family(gpu)
    profile = data.draw(st.sampled_from(table.profiles))
    start = data.draw(st.integers(0, table.memory_slices - 1))
    action = Create(
        gpu=gpu.pci,
        reason="",
        profile=profile.name,
        profile_id=profile.id,
        placement=str(profile.placement(start)),
        compute=(),
    )
    now = frozenset((i.profile, i.place.start) for i in gpu.instances)
    legal = (
        gpu.mig.enabled
        and start in profile.starts
        and (profile.name, start) not in now
        and raw.legal(table.name, now | {(profile.name, start)})
    )
    try:
        step(inventory, action)
    except StepRefusedError:
        assert not legal
    else:
        assert legal
