"""Two applies at the same time: one writer per node, and the second one learns the name of the first."""

from __future__ import annotations

import pytest

from laws.crash import cases
from laws.crash.bench import Bench, finish


@pytest.mark.parametrize("nth", [2, 5])
def test_the_second_is_refused_and_learns_who_is_at_it(bench: Bench, nth: int) -> None:
    machine = bench.machine(cases.REPARTITION)
    first = machine.held_up(nth)
    calls = len(machine.writes())
    second = machine.apply()
    assert (second.code, second.error["code"]) == (20, "LOCKED"), second
    assert f"process {first.pid}" in second.error["message"]
    assert len(machine.writes()) == calls
    assert finish(first).code == 0
    machine.assert_finished()


def test_the_lock_of_a_killed_process_is_free(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    first = machine.held_up(3)
    first.kill()
    assert finish(first).code < 0
    machine.assert_finishes()


def test_looking_on_is_allowed_meanwhile(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    first = machine.held_up(4)
    assert machine.run("show", "-o", "json").code == 0
    assert machine.run("verify", "-f", machine.file).code == 30
    assert machine.run("plan", "-f", machine.file).code == 10
    assert finish(first).code == 0
    machine.assert_finished()


def test_four_at_the_same_moment(bench: Bench) -> None:
    machine = bench.machine(cases.REBUILD)
    running = [machine.begin(*machine.apply_arguments) for _ in range(4)]
    found = [finish(each) for each in running]
    assert any(each.code == 0 for each in found), found
    for each in found:
        assert each.code == 0 or (each.code, each.error["code"] in ("LOCKED", "MOVED")) == (20, True), each
    assert len(machine.writes()) == cases.REBUILD.calls, "each call was made once"
    machine.assert_finished()
