"""Reported steps of an apply, with the duration of each and the error that ended it."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.engine.apply import apply
from aliquot.core.engine.step_timing import TimedStep
from aliquot.core.model import catalog
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.plan import plan
from aliquot.errors import HardwareError, LockedError
from laws.oracle import mig_nodes
from unit.core.engine.memory import Bench

A100 = catalog.family("a100-40gb")


def start(placed: list[tuple[str, int]]) -> Inventory:
    return mig_nodes.node(mig_nodes.gpu(A100, placed, []))


def watched(bench: Bench) -> list[TimedStep]:
    reported: list[TimedStep] = []
    bench.context = msgspec.structs.replace(bench.context, on_step=reported.append)
    return reported


def test_every_step_is_reported_in_order_with_the_profile_that_it_was_about() -> None:
    bench = Bench(start([("3g.20gb", 0), ("1g.5gb", 4)]))
    reported = watched(bench)
    apply(
        plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "2g.10gb"])),
        bench.context,
        bench.messages.append,
    )
    assert [(s.name, s.profile, s.is_action) for s in reported] == [
        ("lock", "", False),
        ("read", "", False),
        ("record", "", False),
        ("hooks", "", False),
        ("destroy", "1g.5gb", True),
        ("create", "2g.10gb", True),
        ("verify", "", False),
    ]
    assert all(s.seconds >= 0 and not s.code for s in reported)


def test_a_failing_act_is_reported_with_its_code_and_the_way_back_as_a_step() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    reported = watched(bench)

    def refuse(n: int, what: str) -> None:
        if what.startswith("create"):
            raise HardwareError("no")

    bench.memory.before = refuse
    outcome = apply(
        plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["3g.20gb", "1g.5gb"])), bench.context, print
    )
    assert outcome.error is not None
    assert [(s.name, s.code) for s in reported if s.code] == [("create", "HARDWARE")]
    assert reported[-1].name == "undo"


def test_a_lock_that_another_process_has_is_reported() -> None:
    bench = Bench(start([]))
    reported = watched(bench)
    request = plan(bench.memory.inventory, mig_nodes.desired_state(A100, ["7g.40gb"]))

    class Taken:
        def hold(self) -> object:
            raise LockedError("process 4711 is at it")

    bench.context = msgspec.structs.replace(bench.context, lock=Taken())
    with pytest.raises(LockedError):
        apply(request, bench.context, print)
    assert [(s.name, s.code) for s in reported] == [("lock", "LOCKED")]
