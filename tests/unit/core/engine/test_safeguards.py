"""Engine safeguards: what must not happen even if every call succeeds, or fails at the worst moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from aliquot.core.engine.executor import as_aliquot_error, execute_actions
from aliquot.core.engine.history import past_runs
from aliquot.core.engine.journal_step import JournalStep
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.run import POLL_S, Run
from aliquot.core.model import catalog
from aliquot.core.model.actions import CreateCompute, DestroyCompute
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Gpu, Holder, Inventory, Mig
from aliquot.core.model.plan import Policy
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.core.planner.verify import verify
from aliquot.errors import AliquotError, HardwareError, InUseError, StorageError
from aliquot.foundation.signals import Stopped
from laws.oracle import mig_nodes
from unit.core.engine.memory import Bench
from unit.core.engine.test_apply import A100, run, start
from unit.core.engine.test_boot_record import MemoryBootRecord

H100 = catalog.family("h100-80gb-sxm")
PCIS = [f"0000:0{n}:00.0" for n in range(1, 5)]
replace = msgspec.structs.replace


def _hold(bench: Bench, placement: str) -> None:
    """Start a process on an instance, if that exists."""
    (gpu,) = bench.memory.inventory.gpus
    instances = tuple(
        replace(i, held=True, holders=(mig_nodes.PROCESS,)) if i.placement == placement else i for i in gpu.instances
    )
    bench.memory.inventory = replace(bench.memory.inventory, gpus=(replace(gpu, instances=instances),))


@pytest.mark.parametrize("call", ["create_gpu_instance", "create_compute_instance", "destroy_gpu_instance", "set_mode"])
def test_a_driver_that_reports_success_and_does_nothing_is_found_out(
    call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The new read after the last action decides, not the results of the calls.
    before = start([("3g.20gb", 0)])
    desired = mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb"] if call.startswith("create") else [])
    if call == "set_mode":
        before = mig_nodes.node(replace(mig_nodes.gpu(H100, ()), mig=Mig(True, "disabled", "disabled")))
        desired = mig_nodes.desired_state(H100, [])
    bench = Bench(before)
    got = plan(before, desired)
    assert got.actions

    def nothing(*_: Any) -> int:
        return True if call == "set_mode" else 7

    monkeypatch.setattr(bench.memory, call, nothing)
    if call == "create_gpu_instance":
        monkeypatch.setattr(bench.memory, "create_compute_instance", nothing)
    outcome = run(bench, got)
    assert outcome.status != "done", outcome
    assert isinstance(outcome.error, HardwareError)
    assert outcome.error.brief.startswith("every call succeeded, but a fresh read disagrees: ")
    assert bench.journal.lines[-1].text != "done"


def test_after_an_error_the_other_gpus_begin_nothing_more() -> None:
    gpus = [mig_nodes.gpu(A100, [("3g.20gb", 0)], pci=pci) for pci in PCIS]
    requests = tuple(w for pci in PCIS for w in mig_nodes.desired_state(A100, ["7g.40gb"], pci).gpus)
    bench = Bench(mig_nodes.node(*gpus))

    def fail(n: int, what: str) -> None:
        if what == f"create {PCIS[1]} 0 0:8":
            raise HardwareError("refused")

    bench.memory.before = fail
    outcome = run(bench, plan(mig_nodes.node(*gpus), Desired(gpus=requests)))
    assert outcome.status == "undone"
    assert verify(bench.memory.inventory, make_restore_point(mig_nodes.node(*gpus), PCIS)) == ()
    touched = {pci for pci in PCIS if any(pci in line for line in bench.memory.log)}
    assert touched == set(PCIS[:2]), "the first completed before the error, the last two did not start"


def _another(gpu: Gpu, placement: str) -> Gpu:
    """Return the GPU after the instance was replaced by one with the same id at the next placement."""
    start_at = int(placement.partition(":")[0])
    instances = tuple(
        replace(i, placement=f"{start_at + 1}:1") if i.placement == placement else i for i in gpu.instances
    )
    return replace(gpu, instances=instances)


def test_an_instance_that_is_another_one_by_now_is_not_destroyed() -> None:
    # Ids repeat: the id of a destroyed instance may belong to a new one, which this run must not destroy.
    before = start([("1g.5gb", 0), ("1g.5gb", 4)])
    got = plan(before, mig_nodes.desired_state(A100, []))
    assert len(got.actions) == 2
    bench = Bench(before)

    def meanwhile(n: int, what: str) -> None:
        if what.startswith("destroy ") and what.endswith("0:1"):
            (gpu,) = bench.memory.inventory.gpus
            bench.memory.inventory = replace(bench.memory.inventory, gpus=(_another(gpu, "4:1"),))

    bench.memory.after = meanwhile
    outcome = run(bench, got)
    assert isinstance(outcome.error, InUseError)
    assert "is no longer 1g.5gb at 4:1" in outcome.error.brief
    assert "5:1" in [i.placement for i in outcome.inventory.gpus[0].instances], "it still exists"
    assert not any(line.startswith("destroy ") and line.endswith("5:1") for line in bench.memory.log)


def _failing_third_create(bench: Bench) -> Inventory:
    """Fail the creation of the third of three new instances. Return the state before."""
    before = bench.memory.inventory

    def fail(n: int, what: str) -> None:
        if what.startswith("create ") and sum(line.startswith("create ") for line in bench.memory.log) == 2:
            raise HardwareError("refused")

    bench.memory.before = fail
    return before


def test_going_back_plans_around_a_new_holder() -> None:
    # The rollback is planned without the right to end holders, regardless of the policy of the change.
    bench = Bench(start([]))
    before = _failing_third_create(bench)
    refuse = bench.memory.before

    def come(n: int, what: str) -> None:
        try:
            refuse(n, what)
        except HardwareError:
            _hold(bench, bench.memory.inventory.gpus[0].instances[0].placement)
            raise

    bench.memory.before = come
    outcome = run(bench, plan(before, mig_nodes.desired_state(A100, ["2g.10gb"] * 3)))
    assert outcome.status == "partial"
    assert any("not undone" in line and "1 instance is held" in line for line in outcome.sentences), outcome.sentences
    assert bench.memory.terminated == []
    assert [i.held for i in outcome.inventory.gpus[0].instances] == [True, False]


def test_going_back_ends_no_holder_that_comes_on_the_way() -> None:
    bench = Bench(start([]))
    before = _failing_third_create(bench)
    kept = ""

    def come(n: int, what: str) -> None:
        nonlocal kept
        if what.startswith("destroy ") and not kept:
            kept = next(i.placement for i in bench.memory.inventory.gpus[0].instances if not what.endswith(i.placement))
            _hold(bench, kept)

    bench.memory.after = come
    outcome = run(bench, plan(before, mig_nodes.desired_state(A100, ["2g.10gb"] * 3)))
    assert kept
    assert outcome.status == "partial"
    assert bench.memory.terminated == []
    assert [i.placement for i in outcome.inventory.gpus[0].instances] == [kept]


FAILURES = [RuntimeError("can't start new thread"), MemoryError(), HardwareError("the driver is gone"), Stopped(15)]


def _raise_at_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, wanted: Callable[[], bool], error: BaseException
) -> None:
    """Make the first read for which ``wanted`` is true raise an error."""
    read = bench.memory.read
    raised: list[int] = []

    def reading() -> Inventory:
        if wanted() and not raised:
            raised.append(1)
            raise error
        return read()

    monkeypatch.setattr(bench.memory, "read", reading)


def _repartition() -> tuple[Inventory, Bench, Any]:
    before = start([("3g.20gb", 0)])
    return before, Bench(before), plan(before, mig_nodes.desired_state(A100, ["2g.10gb"] * 3))


@pytest.mark.parametrize("error", FAILURES, ids=repr)
def test_a_fresh_read_that_fails_leads_back(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    before, bench, got = _repartition()
    _raise_at_read(bench, monkeypatch, lambda: len(bench.memory.inventory.gpus[0].instances) == 3, error)
    outcome = run(bench, got)
    assert outcome.status == ("stopped" if isinstance(error, Stopped) else "undone")
    assert verify(bench.memory.inventory, make_restore_point(before, [mig_nodes.PCI])) == ()
    assert bench.journal.lines[-1].text == outcome.status


@pytest.mark.parametrize("written", [True, False])
def test_a_signal_while_the_begin_is_recorded_ends_as_stopped(written: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    before, bench, got = _repartition()
    append = bench.journal.append

    def pressed(record: Any, *, durable: bool) -> None:
        if record.kind == "begin":
            if written:
                append(record, durable=durable)
            raise Stopped(1)
        append(record, durable=durable)

    monkeypatch.setattr(bench.journal, "append", pressed)
    outcome = run(bench, got)
    assert (outcome.status, outcome.calls) == ("stopped", 0)
    assert outcome.error is not None
    assert outcome.error.exit_code == 129
    assert bench.memory.inventory == before
    (past,) = past_runs(bench.journal.lines)
    assert (past.outcome, past.failure) == ("refused", "stopped by SIGHUP: the terminal or the connection is gone")


@pytest.mark.parametrize("error", FAILURES[:3], ids=repr)
def test_a_way_back_that_an_error_ends_is_on_record(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    # The driver stays unavailable: the first and the second error are reported, and the run has an end record.
    _, bench, got = _repartition()

    def gone(n: int, what: str) -> None:
        if n == 3:
            bench.memory.before = lambda n, what: None
            raise HardwareError("no more resources")

    bench.memory.before = gone
    _raise_at_read(bench, monkeypatch, lambda: bench.memory.writes >= 3, error)
    read = bench.memory.read

    with pytest.raises(AliquotError) as raised:
        run(bench, got)
    assert type(error).__name__ in repr(raised.value) or str(error) in raised.value.brief
    assert any("no more resources" in line for line in raised.value.details), raised.value.details
    (past,) = past_runs(bench.journal.lines)
    assert (past.outcome, past.failure) == ("partial", "no more resources")
    monkeypatch.setattr(bench.memory, "read", read)
    assert run(bench, plan(bench.memory.inventory, got.desired)).status == "done"


@pytest.mark.parametrize("step", ["end", "boot record"])
def test_a_signal_after_all_is_done_finishes_the_records_first(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, bench, got = _repartition()
    pressed: list[int] = []

    def press(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def pressing(*words: Any, **options: Any) -> Any:
            ending = name == "boot record" or words[0].kind == "end"
            if name == step and ending and not pressed:
                pressed.append(1)
                raise Stopped(15)
            return call(*words, **options)

        return pressing

    monkeypatch.setattr(bench.journal, "append", press("end", bench.journal.append))
    boot_record = MemoryBootRecord()
    bench.context = msgspec.structs.replace(bench.context, boot_record=boot_record)
    monkeypatch.setattr(boot_record, "record", press("boot record", boot_record.record))
    with pytest.raises(Stopped):
        run(bench, got)
    assert pressed
    assert any("the change is complete" in line for line in bench.messages)
    assert verify(bench.memory.inventory, got.desired) == ()
    (past,) = past_runs(bench.journal.lines)
    assert past.outcome == "done"
    assert [each.desired for each in boot_record.kept] == list(got.desired.gpus)


@pytest.mark.parametrize("error", [RuntimeError("oh"), StorageError("no space left")])
def test_records_that_fail_after_all_is_done_are_reported_and_no_failure(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, bench, got = _repartition()

    def failing(*words: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(bench.context.boot_record, "record", failing)
    assert run(bench, got).status == "done"
    assert any("not recorded for the next boot" in line and str(error) in line for line in bench.messages)


def test_an_internal_fault_names_its_line() -> None:
    def broken() -> None:
        raise ZeroDivisionError("oops")

    try:
        broken()
    except ZeroDivisionError as error:
        fault = as_aliquot_error(error)
    assert fault.brief == "internal error: ZeroDivisionError: oops"
    line = broken.__code__.co_firstlineno + 1
    assert fault.details == (f"{__file__}:{line}",)
    assert as_aliquot_error(ZeroDivisionError()).details == ()
    assert as_aliquot_error(fault) is fault


def test_a_compute_instance_that_is_held_by_now_is_not_destroyed() -> None:
    # This includes a GPU with a client on the whole GPU, if the same change creates an instance on it.
    node = start([("3g.20gb", 0)])
    (gpu,) = node.gpus
    (instance,) = gpu.instances
    (compute,) = instance.compute_instances
    holder = Holder("process", "7")
    inside = replace(instance, compute_instances=(replace(compute, holders=(holder,)),))
    destroy = DestroyCompute(
        gpu=gpu.pci, reason="", instance=instance.id, compute_instance=compute.id, profile=compute.profile
    )
    create = CreateCompute(gpu=gpu.pci, reason="", instance=instance.id, profile="1c.3g.20gb", profile_id=0)
    for found, actions in (
        (replace(gpu, instances=(inside,)), (destroy,)),
        (replace(gpu, holders=(holder,)), (destroy, create)),
    ):
        bench = Bench(replace(node, gpus=(found,)))
        error = execute_actions(Run(bench.context, Policy(), "run-1", bench.messages.append), actions)
        assert isinstance(error, InUseError), error
        assert bench.memory.log == []


def test_the_end_of_a_change_or_a_rollback_is_on_disk() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    ends: list[bool] = []
    append = bench.journal.append

    def noted(record: JournalEntry, *, durable: bool) -> None:
        if record.kind == "end":
            ends.append(durable)
        append(record, durable=durable)

    def fail(n: int, what: str) -> None:
        if n == 2:
            raise HardwareError("boom")

    bench.journal.append = noted  # type: ignore[method-assign]
    bench.memory.before = fail
    outcome = run(bench, plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb", "1g.5gb"])))
    assert outcome.status == "undone"
    assert ends == [True]
    bench.memory.before = lambda n, what: None
    outcome = run(bench, plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb", "1g.5gb"])))
    assert outcome.status == "done"
    assert ends == [True, True]


@pytest.mark.parametrize(("timeout_s", "calls"), [(0.0, 1), (POLL_S, 2)])
def test_a_call_that_is_refused_is_made_again_until_its_time_is_over(timeout_s: float, calls: int) -> None:
    bench = Bench(start([]))
    run = Run(bench.context, Policy("wait", timeout_s), "run-1", bench.messages.append)

    def act() -> None:
        raise InUseError("in use")

    with pytest.raises(InUseError):
        run.call(mig_nodes.PCI, JournalStep("step"), act)
    assert run.calls == calls
