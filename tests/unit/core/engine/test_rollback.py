"""Rollbacks: they touch only what this run created, and nothing that another process created meanwhile."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from aliquot.core.engine.apply import apply
from aliquot.core.model.actions import Create, CreateCompute
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import ComputeInstance
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.core.planner.verify import verify
from aliquot.errors import HardwareError, InUseError
from laws.oracle import mig_nodes
from unit.core.engine.memory import Bench, KilledError
from unit.core.engine.test_apply import A100, run, start
from unit.core.engine.test_safeguards import FAILURES, _repartition

replace = msgspec.structs.replace

PLANNED = [("1g.5gb", 4), ("1g.5gb", 5)]


def _desired(*placed: tuple[str, int]) -> Desired:
    """Build a desired state with whole instances at these places."""
    of = A100.by_name
    items = tuple(DesiredInstance(of[name].id, name, (of[name].default_compute.id,), at) for name, at in placed)
    return Desired((DesiredGpu(pci=mig_nodes.PCI, mig=True, instances=items),), name="placed")


def _two_of_1g(bench: Bench) -> Plan:
    got = plan(bench.memory.inventory, _desired(*PLANNED))
    assert [a.placement for a in got.actions if isinstance(a, Create)] == ["4:1", "5:1"]
    return got


@pytest.mark.parametrize("code", [19, 23, None])
def test_going_back_spares_an_instance_in_a_place_that_the_driver_refused_to_us(code: int | None) -> None:
    # Before this run does, another process creates an instance with the same profile at the planned place. If the
    # driver only reports that the call failed, the instance may be one of this run: it is destroyed.
    bench = Bench(start([]))
    got = _two_of_1g(bench)

    def taken(n: int, what: str) -> None:
        if n >= 3 and what.startswith("create"):
            bench.memory.inventory = start(PLANNED)
            raise InUseError("in use") if code == 19 else HardwareError("no room", nvml_code=code)

    bench.memory.before = taken
    outcome = run(bench, got)
    left = [i.placement for i in bench.memory.inventory.gpus[0].instances]
    assert outcome.status == "undone"
    assert left == ([] if code is None else ["5:1"])
    assert any("1g.5gb at 5:1 stays: another process created it" in s for s in outcome.sentences) == bool(left)


@pytest.mark.parametrize("kills", [1, 2])
def test_going_back_knows_what_interrupted_runs_made(kills: int) -> None:
    # A run is killed once or twice. The run that resumes it rolls back what they created, and nothing else.
    bench = Bench(start([]))
    got = _two_of_1g(bench)

    def killed(n: int, what: str) -> None:
        if n in (2, 3)[:kills]:
            raise KilledError

    bench.memory.before = killed
    for _ in range(kills):
        with pytest.raises(KilledError):
            run(bench, got)

    def taken(n: int, what: str) -> None:
        instances = bench.memory.inventory.gpus[0].instances
        if all(i.placement != "5:1" for i in instances):
            bench.memory.inventory = start([(i.profile, i.place.start) for i in instances] + PLANNED[1:])
            raise HardwareError("no room", nvml_code=23)

    bench.memory.before = taken
    outcome = run(bench, got)
    assert outcome.status == "undone"
    assert [i.placement for i in bench.memory.inventory.gpus[0].instances] == ["5:1"]


def test_going_back_spares_a_compute_instance_of_another_process() -> None:
    before = start([("3g.20gb", 0)])
    (kept,) = before.gpus[0].instances
    empty = replace(before, gpus=(replace(before.gpus[0], instances=(replace(kept, compute_instances=()),)),))
    other = ComputeInstance(0, "1c.3g.20gb", 0, "2:1")
    bench = Bench(empty)
    got = plan(empty, _desired(("3g.20gb", 0)))
    assert any(isinstance(a, CreateCompute) for a in got.actions)

    def beside(n: int, what: str) -> None:
        (gpu,) = empty.gpus
        held = replace(kept, compute_instances=(other,))
        bench.memory.inventory = replace(empty, gpus=(replace(gpu, instances=(held,)),))
        raise HardwareError("no room", nvml_code=23)

    bench.memory.before = beside
    outcome = run(bench, got)
    assert outcome.status == "undone"
    assert bench.memory.inventory.gpus[0].instances[0].compute_instances == (other,)


@pytest.mark.parametrize("at", range(2, 8))
@pytest.mark.parametrize("error", FAILURES[:2], ids=repr)
def test_a_journal_that_breaks_in_any_way_does_not_keep_us_from_going_back(
    error: Exception, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, bench, got = _repartition()
    append, appended = bench.journal.append, []

    def breaking(record: Any, *, durable: bool) -> None:
        appended.append(record)
        if len(appended) >= at:
            raise error
        append(record, durable=durable)

    monkeypatch.setattr(bench.journal, "append", breaking)
    outcome = run(bench, got)
    assert outcome.status == "undone"
    assert verify(bench.memory.inventory, make_restore_point(before, [mig_nodes.PCI])) == ()
    assert any("the journal could not be written" in line for line in outcome.sentences)


@pytest.mark.parametrize("at", range(1, 6))
def test_a_listener_that_disappears_does_not_keep_us_from_going_back(at: int) -> None:
    # Progress output fails after the terminal has closed.
    before, bench, got = _repartition()
    lines: list[str] = []

    def gone(line: str) -> None:
        lines.append(line)
        if len(lines) >= at:
            raise OSError(5, "Input/output error")

    outcome = apply(got, bench.context, gone)
    if len(lines) < at:
        assert outcome.status == "done"
        return
    assert outcome.status == "undone"
    assert verify(bench.memory.inventory, make_restore_point(before, [mig_nodes.PCI])) == ()
    assert bench.journal.lines[-1].text == "undone"
