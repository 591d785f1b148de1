"""The steps that an apply tells of, with how long each took and which error ended it."""

from __future__ import annotations

import pytest

from aliquot.core.engine.apply import apply
from aliquot.core.engine.step_timing import TimedStep
from aliquot.core.model import catalog
from aliquot.core.model.inventory import Inventory
from aliquot.core.planner.plan import plan
from aliquot.errors import HardwareError, LockedError
from laws.oracle import world
from unit.core.engine.memory import Bench

A100 = catalog.family("a100-40gb")


def start(placed: list[tuple[str, int]]) -> Inventory:
    return world.node(world.gpu(A100, placed, []))


def watched(bench: Bench) -> list[TimedStep]:
    told: list[TimedStep] = []
    bench.world.on_step = told.append
    return told


def test_every_step_is_told_in_order_with_the_profile_that_it_was_about() -> None:
    bench = Bench(start([("3g.20gb", 0), ("1g.5gb", 4)]))
    told = watched(bench)
    apply(plan(bench.memory.inventory, world.wish(A100, ["3g.20gb", "2g.10gb"])), bench.world, bench.said.append)
    assert [(s.name, s.profile, s.is_action) for s in told] == [
        ("lock", "", False),
        ("read", "", False),
        ("record", "", False),
        ("hooks", "", False),
        ("destroy", "1g.5gb", True),
        ("create", "2g.10gb", True),
        ("verify", "", False),
    ]
    assert all(s.seconds >= 0 and not s.code for s in told)


def test_a_failing_act_is_told_with_its_code_and_the_way_back_as_a_step() -> None:
    bench = Bench(start([("3g.20gb", 0)]))
    told = watched(bench)

    def refuse(n: int, what: str) -> None:
        if what.startswith("create"):
            raise HardwareError("no")

    bench.memory.before = refuse
    outcome = apply(plan(bench.memory.inventory, world.wish(A100, ["3g.20gb", "1g.5gb"])), bench.world, print)
    assert outcome.error is not None
    assert [(s.name, s.code) for s in told if s.code] == [("create", "HARDWARE")]
    assert told[-1].name == "undo"


def test_a_lock_that_another_process_has_is_told() -> None:
    bench = Bench(start([]))
    told = watched(bench)
    wish = plan(bench.memory.inventory, world.wish(A100, ["7g.40gb"]))

    class Taken:
        def hold(self) -> object:
            raise LockedError("process 4711 is at it")

    bench.world.lock = Taken()  # type: ignore[assignment]
    with pytest.raises(LockedError):
        apply(wish, bench.world, print)
    assert [(s.name, s.code) for s in told] == [("lock", "LOCKED")]
