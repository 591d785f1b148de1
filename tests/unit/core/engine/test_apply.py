"""The engine in memory: apply, verify, or roll back, with every failure and every kill."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.core.engine.apply import apply
from aliquot.core.engine.context import ApplyOutcome
from aliquot.core.engine.ports import FORMAT
from aliquot.core.model import catalog
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Inventory, Mig
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.core.planner.verify import verify
from aliquot.errors import (
    AliquotError,
    BlockedError,
    GpuLostError,
    HardwareError,
    InUseError,
    StalePlanError,
    StorageError,
)
from aliquot.foundation.signals import Stopped
from laws.oracle import mig_nodes
from laws.property import strategies
from support.selection import laws
from unit.core.engine.memory import Bench, KilledError

LAWS = laws(60)
replace = msgspec.structs.replace
A100 = catalog.family("a100-40gb")
H100 = catalog.family("h100-80gb-sxm")


def run(bench: Bench, got: Plan) -> ApplyOutcome:
    return apply(got, bench.context, bench.messages.append)


def start(placed: list[tuple[str, int]], held: list[tuple[str, int]] | None = None) -> Inventory:
    return mig_nodes.node(mig_nodes.gpu(A100, placed, held or []))


def alive(inventory: Inventory) -> set[tuple[str, str, int]]:
    return {(g.pci, i.placement, i.profile_id) for g in inventory.gpus for i in g.instances if i.held}


def test_a_satisfied_request_makes_no_write_call_and_leaves_no_record() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    outcome = run(bench, plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb"])))
    assert (outcome.status, outcome.calls, bench.memory.log, bench.journal.lines) == ("nothing", 0, [], [])


def test_each_write_is_on_record_before_it_happens() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    recorded: list[int] = []
    bench.memory.before = lambda n, what: recorded.append(sum(r.kind == "intent" for r in bench.journal.lines))
    outcome = run(bench, plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb", "1g.5gb"])))
    assert outcome.status == "done"
    assert recorded == list(range(1, bench.memory.writes + 1))
    assert bench.journal.lines[0].kind == "begin"
    assert bench.journal.lines[-1].text == "done"
    assert not any("0:4" in line for line in bench.memory.log), "a call reached the kept instance"


@LAWS
@given(strategies.cases(size=2), st.integers(1, 40))
def test_any_failing_call_leads_back(case: tuple[Inventory, Desired], nth: int) -> None:
    inventory, desired = case
    got = plan(inventory, desired)
    bench = Bench(inventory)

    def fail(n: int, what: str) -> None:
        if n == nth:
            raise HardwareError(f"refused {what}", nvml_code=999)

    bench.memory.before = fail
    if got.blockers:
        return
    outcome = run(bench, got)
    if bench.memory.writes < nth or not got.actions:
        assert outcome.status in ("done", "nothing")
        assert verify(bench.memory.inventory, desired) == ()
        return
    assert outcome.status == "undone", outcome
    assert outcome.error is not None
    assert verify(bench.memory.inventory, make_restore_point(inventory, list(got.actions_by_gpu))) == ()
    assert alive(inventory) <= alive(bench.memory.inventory)


@LAWS
@given(strategies.cases(size=2), st.integers(1, 40), st.sampled_from(["before", "after", "record"]))
def test_killed_anywhere_and_run_again_finishes(case: tuple[Inventory, Desired], nth: int, when: str) -> None:
    inventory, desired = case
    got = plan(inventory, desired)
    bench = Bench(inventory)

    def kill(n: int, what: str = "") -> None:
        if n == nth:
            raise KilledError

    if got.blockers:
        return
    if when == "record":
        bench.journal.on_append = kill
    else:
        setattr(bench.memory, when, kill)
    try:
        run(bench, got)
    except KilledError:
        bench.journal.on_append = bench.memory.before = bench.memory.after = lambda *a: None  # type: ignore[assignment]
        bench.memory.suspended = False
        outcome = run(bench, got)
        assert outcome.status in ("done", "nothing"), outcome
    assert verify(bench.memory.inventory, desired) == ()
    assert alive(inventory) <= alive(bench.memory.inventory)


def test_a_plan_of_another_moment_is_refused() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    got = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb"]))
    bench.memory.inventory = start([("3g.20gb", 0), ("1g.5gb", 6)])
    with pytest.raises(StalePlanError):
        run(bench, got)
    assert bench.memory.log == []


def test_a_resumed_plan_reports_what_is_left_only_if_something_is() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    got = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb", "1g.5gb"]))

    def kill(n: int, what: str) -> None:
        if n == 3:
            raise KilledError

    bench.memory.before = kill
    with pytest.raises(KilledError):
        run(bench, got)
    bench.memory.before = lambda n, what: None
    run(bench, got)
    assert "an earlier run of this plan was interrupted; 1 action is left" in bench.messages
    bench.messages.clear()
    assert run(bench, got).status == "nothing"
    assert not any("interrupted" in text for text in bench.messages)


def test_a_cut_off_plan_is_not_resumed_over_foreign_work() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    got = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb"]))

    def kill(n: int, what: str) -> None:
        raise KilledError

    bench.memory.before = kill
    with pytest.raises(KilledError):
        run(bench, got)
    bench.memory.inventory = start([("3g.20gb", 0), ("1g.5gb", 6)])
    with pytest.raises(StalePlanError):
        run(bench, got)


def test_a_blocked_plan_is_not_carried_out() -> None:
    bench = Bench(start([("3g.20gb", 0)], [("3g.20gb", 0)]))
    with pytest.raises(BlockedError):
        run(bench, plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["7g.40gb"])))
    assert bench.memory.log == []


def test_held_since_the_plan_stops_and_undoes() -> None:
    before = start([("3g.20gb", 0), ("2g.10gb", 4)])
    bench = Bench(before)
    got = plan(before, mig_nodes.desired_state(A100, ["7g.40gb"]))
    bench.memory.inventory = start([("3g.20gb", 0), ("2g.10gb", 4)], [("2g.10gb", 4)])
    outcome = run(bench, got)
    assert outcome.status == "undone"
    assert isinstance(outcome.error, InUseError)
    assert "process 4711" in outcome.error.brief
    assert alive(bench.memory.inventory)


@pytest.mark.parametrize("fails", [False, True])
def test_what_follows_the_gpus_is_reported_of_them_also_on_the_way_back(fails: bool) -> None:
    before = start([("3g.20gb", 0)])
    bench = Bench(before)
    reported: list[Inventory] = []
    states_of = replace(bench.context, update_dependents=lambda inventory, _: reported.append(inventory))

    def fail(n: int, what: str) -> None:
        if fails and n == 3:
            raise HardwareError(f"refused {what}", nvml_code=999)

    bench.memory.before = fail
    outcome = apply(plan(before, mig_nodes.desired_state(A100, ["7g.40gb"])), states_of, bench.messages.append)
    assert outcome.status == ("undone" if fails else "done")
    assert reported == [bench.memory.inventory]


def test_a_signal_while_files_follow_the_way_back_loses_nothing() -> None:
    before = start([("3g.20gb", 0)])
    bench = Bench(before)
    reported: list[Inventory] = []

    def follow(inventory: Inventory, _: object) -> None:
        reported.append(inventory)
        if len(reported) == 1:
            raise KeyboardInterrupt

    def fail(n: int, what: str) -> None:
        if n == 3:
            raise HardwareError(f"refused {what}", nvml_code=999)

    states_of = replace(bench.context, update_dependents=follow)
    bench.memory.before = fail
    outcome = apply(plan(before, mig_nodes.desired_state(A100, ["7g.40gb"])), states_of, bench.messages.append)
    assert outcome.status == "undone"
    assert outcome.error is not None
    assert outcome.error.brief.startswith("refused")
    assert reported == [bench.memory.inventory] * 2


def test_nothing_that_follows_is_a_failure() -> None:
    bench = Bench(start([]))
    messages: list[str] = []

    def breaks(*_: object) -> None:
        raise OSError(28, "No space left on device")

    states_of = replace(bench.context, update_dependents=breaks)
    assert (
        apply(
            plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["7g.40gb"])), states_of, messages.append
        ).status
        == "done"
    )
    assert [line for line in messages if line.startswith("note: what depends on the GPUs was not updated:")]


def test_policy_wait_waits_and_no_longer_than_asked() -> None:
    inventory = start([("3g.20gb", 0)], [("3g.20gb", 0)])
    got = plan(inventory, mig_nodes.desired_state(A100, ["7g.40gb"]), Policy("wait", 5.0))
    bench = Bench(inventory)
    bench.memory.released_at = 3.0
    assert run(bench, got).status == "done"
    assert 3.0 <= bench.clock.t < 3.5
    bench = Bench(inventory)
    outcome = run(bench, got)
    assert outcome.status == "undone"
    assert 5.0 <= bench.clock.t < 5.5
    assert alive(bench.memory.inventory)


def test_policy_force_ends_the_holder() -> None:
    inventory = start([("3g.20gb", 0)], [("3g.20gb", 0)])
    bench = Bench(inventory)
    assert run(bench, plan(inventory, mig_nodes.desired_state(A100, ["7g.40gb"]), Policy("force"))).status == "done"
    assert any("ending process 4711" in line for line in bench.messages)


def test_a_driver_that_lets_go_late_is_given_time() -> None:
    bench = Bench(start([("3g.20gb", 0)]))

    def busy(n: int, what: str) -> None:
        if bench.clock.t < 0.3:
            raise InUseError("in use by another client")

    bench.memory.before = busy
    assert run(bench, plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["7g.40gb"]))).status == "done"
    bench = Bench(start([("3g.20gb", 0)]))
    bench.memory.before = lambda n, what: (_ for _ in ()).throw(InUseError("in use"))
    outcome = run(bench, plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["7g.40gb"])))
    assert (outcome.status, bench.memory.log) == ("undone", [])
    assert bench.clock.t < 10


def test_ampere_mode_changes_reset_only_the_gpus_that_need_it() -> None:
    off = replace(mig_nodes.gpu(A100, (), pci="0000:08:00.0"), mig=Mig(True, "disabled", "disabled"))
    on = mig_nodes.gpu(A100, [("3g.20gb", 0)], [("3g.20gb", 0)], pci="0000:07:00.0")
    inventory = mig_nodes.node(on, off)
    requests = (
        mig_nodes.desired_state(A100, ["3g.20gb"], on.pci).gpus
        + mig_nodes.desired_state(A100, ["7g.40gb"], off.pci).gpus
    )
    got = plan(inventory, Desired(gpus=requests))
    assert got.resets == (off.pci,)
    bench = Bench(inventory)
    assert run(bench, got).status == "done"
    assert [line for line in bench.memory.log if on.pci in line] == []
    assert f"reset {off.pci}" in bench.memory.log
    assert bench.hooks.fired == ["apply-start", "pre-apply-mode", "pre-apply-config", "apply-exit"]


def test_hopper_changes_mode_without_a_reset() -> None:
    off = replace(mig_nodes.gpu(H100, ()), mig=Mig(True, "disabled", "disabled"))
    got = plan(mig_nodes.node(off), mig_nodes.desired_state(H100, ["7g.80gb"]))
    assert got.resets == ()
    bench = Bench(mig_nodes.node(off))
    assert run(bench, got).status == "done"
    assert not any(line.startswith("reset") for line in bench.memory.log)


def test_where_no_reset_is_possible_a_reboot_is_predicted() -> None:
    off = replace(mig_nodes.gpu(A100, ()), mig=Mig(True, "disabled", "disabled"), resettable=False)
    got = plan(mig_nodes.node(off), mig_nodes.desired_state(A100, ["7g.40gb"]))
    assert (got.reboots, got.created) == ((off.pci,), 0)
    bench = Bench(mig_nodes.node(off))
    assert run(bench, got).status == "reboot"
    assert bench.memory.log == [f"mode {off.pci} enabled"]


def test_a_lost_gpu_does_not_keep_the_others_from_going_back() -> None:
    one = mig_nodes.gpu(A100, [("3g.20gb", 0)], pci="0000:07:00.0")
    two = mig_nodes.gpu(A100, [("3g.20gb", 0)], pci="0000:08:00.0")
    inventory = mig_nodes.node(one, two)
    requests = (
        mig_nodes.desired_state(A100, ["7g.40gb"], one.pci).gpus
        + mig_nodes.desired_state(A100, ["7g.40gb"], two.pci).gpus
    )
    bench = Bench(inventory)

    def lose(n: int, what: str) -> None:
        if two.pci in what and what.startswith("create "):
            gpus = tuple(replace(g, lost=g.pci == two.pci) for g in bench.memory.inventory.gpus)
            bench.memory.inventory = replace(bench.memory.inventory, gpus=gpus)
            raise GpuLostError(f"GPU {two.pci} is lost")

    bench.memory.before = lose
    outcome = run(bench, plan(inventory, Desired(gpus=requests)))
    assert outcome.status == "partial"
    assert {d.gpu for d in outcome.drift} == {two.pci}
    assert verify(bench.memory.inventory, make_restore_point(inventory, [one.pci])) == ()
    assert any("not undone" in s for s in outcome.sentences)


@pytest.mark.parametrize("nth", range(1, 12))
def test_a_full_disk_loses_nothing(nth: int) -> None:
    inventory = start([("3g.20gb", 0), ("2g.10gb", 4)], [("2g.10gb", 4)])
    bench = Bench(inventory)
    bench.journal.fail_at = nth
    got = plan(inventory, mig_nodes.desired_state(A100, ["2g.10gb"] * 3))
    if nth == 1:
        with pytest.raises(StorageError):
            run(bench, got)
        assert bench.memory.log == []
        return
    outcome = run(bench, got)
    assert outcome.status in ("undone", "done")
    request = got.desired if outcome.status == "done" else make_restore_point(inventory, [mig_nodes.PCI])
    assert verify(bench.memory.inventory, request) == ()
    assert alive(inventory) <= alive(bench.memory.inventory)


@pytest.mark.parametrize("name", ["apply-start", "pre-apply-config", "apply-exit"])
def test_a_failing_hook_stops_the_apply(name: str) -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    bench.hooks.fails = name
    got = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["7g.40gb"]))
    if name == "pre-apply-config":
        outcome = run(bench, got)
        assert outcome.status == "undone"
        assert outcome.error is not None
    else:
        with pytest.raises(AliquotError, match=name):
            run(bench, got)
    assert bench.hooks.fired[-1] == "apply-exit"
    assert bool(bench.memory.log) == (name == "apply-exit")


def test_mode_only_leaves_instances_alone() -> None:
    inventory = start([("3g.20gb", 0)])
    desired = Desired(gpus=(DesiredGpu(mig_nodes.PCI, True, None),))
    assert plan(inventory, desired).actions == ()
    assert verify(inventory, desired) == ()


def test_a_client_of_the_whole_gpu_blocks_before_anything_is_destroyed() -> None:
    gpu = replace(mig_nodes.gpu(A100, [("2g.10gb", 0)]), holders=(mig_nodes.PROCESS,))
    got = plan(mig_nodes.node(gpu), mig_nodes.desired_state(A100, ["7g.40gb"]))
    assert [(b.rule, b.holders) for b in got.blockers] == [("HELD", (mig_nodes.PROCESS,))]
    assert plan(mig_nodes.node(gpu), mig_nodes.desired_state(A100, ["2g.10gb"])).blockers == ()
    for policy in (Policy("force"), Policy("wait", 5.0)):
        bench = Bench(mig_nodes.node(gpu))
        bench.memory.released_at = 2.0
        assert (
            run(bench, plan(mig_nodes.node(gpu), mig_nodes.desired_state(A100, ["7g.40gb"]), policy)).status == "done"
        )


def test_a_client_that_came_after_the_plan_costs_no_instance() -> None:
    bench = Bench(start([("2g.10gb", 0)]))
    got = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["7g.40gb"]))
    bench.memory.inventory = mig_nodes.node(replace(bench.memory.inventory.gpus[0], holders=(mig_nodes.PROCESS,)))
    outcome = run(bench, got)
    assert (outcome.status, outcome.calls, bench.memory.log) == ("undone", 0, [])
    assert isinstance(outcome.error, InUseError)


@pytest.mark.parametrize("nth", range(1, 9))
def test_ctrl_c_goes_back(nth: int) -> None:
    before = start([("3g.20gb", 0), ("2g.10gb", 4)], [("2g.10gb", 4)])
    bench = Bench(before)

    def press(n: int, what: str) -> None:
        if n == nth:
            raise KeyboardInterrupt

    bench.memory.after = press
    outcome = run(bench, plan(before, mig_nodes.desired_state(A100, ["2g.10gb", "2g.10gb", "1g.5gb"])))
    if bench.memory.writes < nth:
        assert outcome.status == "done"
        return
    assert outcome.status == "stopped"
    assert outcome.error is not None
    assert outcome.error.exit_code == 130
    assert verify(bench.memory.inventory, make_restore_point(before, [mig_nodes.PCI])) == ()


def test_what_was_cut_off_is_reported_until_it_is_done() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    desired = mig_nodes.desired_state(A100, ["2g.10gb"] * 3)

    def kill(n: int, what: str) -> None:
        if n == 3:
            raise KilledError

    bench.memory.before = kill
    with pytest.raises(KilledError):
        run(bench, plan(bench.memory.inventory, desired))
    bench.memory.before = lambda n, what: None
    assert run(bench, plan(bench.memory.inventory, desired)).status == "done"
    assert any("an earlier apply was interrupted" in line for line in bench.messages)
    bench.messages.clear()
    assert run(bench, plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["2g.10gb"]))).status == "done"
    assert not any("cut off" in line for line in bench.messages)


@pytest.mark.parametrize("body", [b"{}", b'{"actions":[{"type":"new-in-9.9"}]}', b'{"node":7}', b"[" * 5000, b'"\xff"'])
@pytest.mark.parametrize("format", [FORMAT, FORMAT + 1])
def test_a_run_of_another_version_that_was_cut_off_blocks_nothing(format: int, body: bytes) -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    desired = mig_nodes.desired_state(A100, ["2g.10gb"] * 3)

    def kill(n: int, what: str) -> None:
        if n == 3:
            raise KilledError

    bench.memory.before = kill
    old = plan(bench.memory.inventory, desired)
    with pytest.raises(KilledError):
        run(bench, old)
    bench.memory.before = lambda n, what: None
    begin = bench.journal.lines[0]
    change = msgspec.Raw(body) if format == FORMAT else begin.change
    bench.journal.lines[0] = replace(begin, change=change, format=format)
    with pytest.raises(StalePlanError):
        run(bench, old)
    assert run(bench, plan(bench.memory.inventory, desired)).status == "done"
    assert any("another version" in line for line in bench.messages)


@pytest.mark.parametrize("at", range(1, 7))
def test_an_error_that_is_not_ours_goes_back_as_well(at: int) -> None:
    before = start([("3g.20gb", 0)])
    bench = Bench(before)

    def broken(n: int, what: str) -> None:
        if n == at:
            raise RuntimeError("can't start new thread")

    bench.memory.before = broken
    outcome = run(bench, plan(before, mig_nodes.desired_state(A100, ["2g.10gb"] * 3)))
    assert outcome.status == "undone"
    assert outcome.error is not None
    assert "RuntimeError: can't start new thread" in outcome.error.brief
    assert verify(bench.memory.inventory, make_restore_point(before, [mig_nodes.PCI])) == ()
    assert bench.journal.lines[-1].text == "undone"


def test_going_back_spares_an_idle_foreign_instance() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    got = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb"]))

    def beside(n: int, what: str) -> None:
        bench.memory.inventory = start([("3g.20gb", 0), ("1g.5gb", 6)])
        raise HardwareError("the driver said no")

    bench.memory.before = beside
    outcome = run(bench, got)
    assert outcome.status == "undone"
    assert [i.profile for i in bench.memory.inventory.gpus[0].instances] == ["3g.20gb", "1g.5gb"]
    assert bench.memory.log == []
    assert any("1g.5gb at 6:1 stays: another process created it" in line for line in outcome.sentences)


@pytest.mark.parametrize("number", [2, 15, 1])
@pytest.mark.parametrize("again", [0, 1, 2, 3])
def test_a_signal_goes_back_and_another_one_on_the_way_changes_nothing(number: int, again: int) -> None:
    before = start([("3g.20gb", 0)])
    bench = Bench(before)

    def pressed(n: int, what: str) -> None:
        if n in (3, 3 + again):
            raise Stopped(number)

    bench.memory.before = pressed
    outcome = run(bench, plan(before, mig_nodes.desired_state(A100, ["2g.10gb"] * 3)))
    assert outcome.status == "stopped"
    assert outcome.error is not None
    assert (outcome.error.code, outcome.error.exit_code) == ("INTERRUPTED", 128 + number)
    assert verify(bench.memory.inventory, make_restore_point(before, [mig_nodes.PCI])) == ()
    assert bench.journal.lines[-1].text == "stopped"


def test_a_plan_without_actions_that_is_not_met_is_refused() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    made = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb"]))
    with pytest.raises(StalePlanError, match=r"2g\.10gb") as caught:
        apply(msgspec.structs.replace(made, actions=()), bench.context, bench.messages.append)
    assert caught.value.next_step == "aliquot plan"
    assert bench.journal.lines == []
