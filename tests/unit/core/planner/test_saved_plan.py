"""Saved plans: accepted regardless of what their holders did since, and only as the planner created them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aliquot.core.engine.apply import apply
from aliquot.core.model.actions import Create, Destroy
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Gpu, GpuInstance, Holder, Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner import saved_plan
from aliquot.core.planner.plan import plan
from aliquot.core.planner.saved_plan import confirm
from aliquot.errors import PlanMismatchError, StalePlanError
from laws.oracle import mig_nodes
from laws.property import strategies
from support.selection import laws
from unit.core.engine.hosts import desired_state, host
from unit.core.engine.memory import Bench, KilledError
from unit.core.engine.test_apply import A100, run, start

LAWS = laws(100)
PROCESS = Holder("process", "1")
QUIET = st.sampled_from([Policy(), Policy("wait", 1.0)])
POLICIES = st.sampled_from([Policy(), Policy("wait", 1.0), Policy("force")])
replace = msgspec.structs.replace


def _held(inventory: Inventory, held: bool) -> Inventory:
    def instance(each: GpuInstance) -> GpuInstance:
        return replace(each, held=held, holders=(PROCESS,) if held else ())

    def gpu(each: Gpu) -> Gpu:
        return replace(each, instances=tuple(map(instance, each.instances)))

    return replace(inventory, gpus=tuple(map(gpu, inventory.gpus)))


@LAWS
@given(strategies.cases(size=2), POLICIES)
def test_what_the_planner_made_is_accepted(case: tuple[Inventory, Desired], policy: Policy) -> None:
    inventory, desired = case
    made = plan(inventory, desired, policy)
    assume(not made.blocked)
    confirm(made, inventory)


@LAWS
@given(strategies.cases(size=2), QUIET)
def test_holders_that_left_change_nothing(case: tuple[Inventory, Desired], policy: Policy) -> None:
    inventory, desired = case
    made = plan(inventory, desired, policy)
    assume(not made.blocked and not any(_ends_a_holder(inventory, a) for a in made.actions))
    confirm(made, _held(inventory, False))


def _ends_a_holder(inventory: Inventory, action: object) -> bool:
    if not isinstance(action, Destroy):
        return False
    found = inventory.gpu(action.gpu).instance(action.instance)
    return found is not None and found.held


@LAWS
@given(strategies.cases(size=2), QUIET)
def test_holders_that_came_change_nothing(case: tuple[Inventory, Desired], policy: Policy) -> None:
    # If the holders block an action, the engine finds them before the action.
    inventory = _held(case[0], False)
    made = plan(inventory, case[1], policy)
    confirm(made, _held(inventory, True))


PAIR = [("1g.5gb", 0), ("1g.5gb", 1)]


@pytest.mark.parametrize("policy", [Policy(), Policy("wait", 1.0)], ids=lambda p: p.held)
@pytest.mark.parametrize("then", range(4))
@pytest.mark.parametrize("now", range(4))
def test_the_choice_between_two_equal_instances_may_be_that_of_other_holders(
    then: int, now: int, policy: Policy
) -> None:
    # A plan destroys one of two instances. Which one depends on the holders at the time of planning.

    def held(bits: int) -> Inventory:
        return start(PAIR, [place for n, place in enumerate(PAIR) if bits >> n & 1])

    made = plan(held(then), mig_nodes.desired_state(A100, ["1g.5gb"]), policy)
    if not made.blocked:
        confirm(made, held(now))


def test_held_instances_that_go_first_may_be_idle_by_now() -> None:
    made = plan(start(PAIR, PAIR[1:]), mig_nodes.desired_state(A100, ["7g.40gb"]), Policy("wait", 1.0))
    assert [a.placement for a in made.actions if isinstance(a, Destroy)] == ["1:1", "0:1"]
    confirm(made, start(PAIR))


@LAWS
@given(strategies.cases(size=2), POLICIES, st.integers(0))
def test_without_one_action_it_is_refused(case: tuple[Inventory, Desired], policy: Policy, nth: int) -> None:
    inventory, desired = case
    made = plan(inventory, desired, policy)
    assume(made.actions)
    dropped = nth % len(made.actions)
    edited = replace(made, actions=made.actions[:dropped] + made.actions[dropped + 1 :])
    with pytest.raises(PlanMismatchError, match="nothing was touched"):
        confirm(edited, inventory)


def test_under_force_the_planner_chooses_whose_holder_is_ended() -> None:
    # Either instance may go. The planner takes the idle one only, even if its neighbor was idle at the time of
    # planning.
    made = plan(start(PAIR), mig_nodes.desired_state(A100, ["1g.5gb"]), Policy("force"))
    (gone,) = made.actions
    assert isinstance(gone, Destroy)
    confirm(made, start(PAIR))
    with pytest.raises(PlanMismatchError):
        confirm(made, start(PAIR, [place for place in PAIR if f"{place[1]}:1" == gone.placement]))


def test_an_edited_plan_does_not_resume_one_that_was_cut_off() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    made = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb"]))

    def kill(n: int, what: str) -> None:
        raise KilledError

    bench.memory.after = kill
    with pytest.raises(KilledError):
        run(bench, made)
    bench.memory.after = lambda n, what: None
    (create,) = made.actions
    assert isinstance(create, Create)
    edited = replace(made, actions=(create, replace(create, placement="0:1")))
    with pytest.raises(StalePlanError):
        apply(edited, bench.context, bench.messages.append, check=confirm)
    assert bench.memory.writes == 1
    assert apply(made, bench.context, bench.messages.append, check=confirm).status == "done"


def test_a_name_in_the_desired_state_that_its_id_does_not_mean_is_refused() -> None:
    # Only the ids decide what happens, but a reader of the file and of the boot record sees the names.
    now = start([("3g.20gb", 0)])
    made = plan(now, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb"]))
    (want,) = made.desired.gpus
    assert want.instances
    renamed = (want.instances[0], replace(want.instances[1], name="1g.5gb"))
    edited = replace(made, desired=replace(made.desired, gpus=(replace(want, instances=renamed),)))
    with pytest.raises(PlanMismatchError) as raised:
        confirm(edited, now)
    assert raised.value.details == (f"GPU {want.pci}: id 14 is 2g.10gb, not 1g.5gb",)
    assert raised.value.next_step == "aliquot plan -f FILE --out plan.json"


def test_a_vgpu_type_in_the_desired_state_that_its_id_does_not_mean_is_refused() -> None:
    now = host("a2", "sriov-mdev")
    made = plan(now, desired_state(now, "A2-4Q"))
    (gpu,) = made.desired.gpus
    assert gpu.vgpus
    confirm(made, now)
    renamed = tuple(replace(v, type="NVIDIA A2-16Q") for v in gpu.vgpus)
    edited = replace(made, desired=replace(made.desired, gpus=(replace(gpu, vgpus=renamed),)))
    with pytest.raises(PlanMismatchError, match="names profiles"):
        confirm(edited, now)


def test_an_edited_plan_is_not_recorded() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    made = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb"]))
    with pytest.raises(PlanMismatchError):
        apply(replace(made, actions=()), bench.context, bench.messages.append, check=confirm)
    assert (bench.memory.log, bench.journal.lines) == ([], [])


def _details(edited: Plan, inventory: Inventory) -> tuple[str, ...]:
    with pytest.raises(PlanMismatchError) as caught:
        confirm(edited, inventory)
    return caught.value.details


def test_the_difference_is_named() -> None:
    now = start([("3g.20gb", 0)])
    made = plan(now, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb", "1g.5gb"]))
    first, second = made.actions
    one, other = (saved_plan._text(saved_plan._plain(each)) for each in made.actions)
    more = replace(second, placement="0:1")
    assert _details(replace(made, actions=(first,)), now) == (f"missing in the file: {other}",)
    assert _details(replace(made, actions=(first, second, more)), now) == (
        f"only in the file: {saved_plan._text(saved_plan._plain(more))}",
    )
    assert _details(replace(made, actions=(first, first, second)), now) == (f"only in the file: {one}",)
    assert _details(replace(made, actions=(second, first)), now) == ("the file has the same actions in another order",)
    assert _details(replace(made, unchanged=7), now) == ("the file says kept 7, the planner 1",)
