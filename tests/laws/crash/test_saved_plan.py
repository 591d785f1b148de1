"""Interrupted saved plans: only the same command finishes them, and only the steps that the host itself made count."""

from __future__ import annotations

import pytest

from laws.crash import cases
from laws.crash.bench import FIRST, KILLED, Bench, Case, Trip

SLOW = pytest.mark.slow
SLOW_TOO = [cases.REPARTITION, pytest.param(cases.PAIR, marks=SLOW), pytest.param(cases.MODE, marks=SLOW)]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("case", SLOW_TOO, ids=lambda c: c.name)
def test_killed_at_every_write_the_same_plan_finishes(bench: Bench, case: Case, when: str) -> None:
    for nth in range(1, case.calls + 1):
        machine = bench.machine(case)
        machine.save()
        machine.node.inject_fault("kill", when=when, nth=nth)
        assert machine.run(*machine.as_saved).code == KILLED
        machine.assert_finishes(*machine.as_saved)


@pytest.mark.parametrize("when", [pytest.param("before", marks=SLOW), "after"])
def test_killed_at_every_fsync_the_same_plan_finishes(bench: Bench, when: str) -> None:
    for nth in range(1, FIRST + cases.SPLIT.calls + 2):
        machine = bench.machine(cases.SPLIT)
        machine.save()
        assert machine.run(*machine.as_saved, trip=Trip(nth, when)).code == KILLED
        machine.assert_finishes(*machine.as_saved)


def test_killed_again_and_again_the_same_plan_finishes(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    machine.save()
    kills = 0
    while True:
        machine.node.inject_fault("none")
        machine.node.inject_fault("kill", when="after", nth=1)
        found = machine.run(*machine.as_saved)
        if found.code == 0:
            break
        assert found.code == KILLED, found
        kills += 1
        assert len(machine.writes()) == kills
    assert kills == cases.REPARTITION.calls
    machine.assert_finished()


def test_cut_off_then_failing_it_goes_all_the_way_back(bench: Bench) -> None:
    # The previous state is the one before the first run, not the one at the interruption.
    machine = bench.machine(cases.REPARTITION)
    machine.save()
    machine.node.inject_fault("kill", when="after", nth=3)
    assert machine.run(*machine.as_saved).code == KILLED
    machine.node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, calls=1)
    found = machine.run(*machine.as_saved)
    assert (found.code, found.document["status"]) == (40, "undone"), found
    machine.assert_previous()
    machine.assert_finishes(*machine.as_saved)


def test_carried_out_already_there_is_nothing_to_do(bench: Bench) -> None:
    machine = bench.machine(cases.SPLIT)
    machine.save()
    assert machine.run(*machine.as_saved).code == 0
    found = machine.run(*machine.as_saved)
    assert (found.code, found.document["status"]) == (0, "nothing"), found
    assert len(machine.writes()) == cases.SPLIT.calls


def test_carried_out_and_then_changed_by_hand_it_is_refused(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    machine.save()
    assert machine.run(*machine.as_saved).code == 0
    last = max(machine.node.show()["gpus"][0]["instances"], key=lambda i: str(i["placement"]))
    machine.node.destroy(0, last["id"])
    found = machine.run(*machine.as_saved)
    assert (found.code, found.error["code"]) == (20, "MOVED"), found
    assert len(machine.writes()) == cases.REPARTITION.calls


def test_foreign_work_in_between_is_not_touched(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    machine.save()
    machine.node.inject_fault("kill", when="after", nth=4)
    assert machine.run(*machine.as_saved).code == KILLED
    other = machine.node.create(0, "1g.6gb+me", 2)
    found = machine.run(*machine.as_saved)
    assert (found.code, found.error["code"]) == (20, "MOVED"), found
    assert len(machine.writes()) == 4
    machine.node.destroy(0, other)
    machine.assert_finishes(*machine.as_saved)


def test_after_a_reboot_a_saved_plan_is_refused(bench: Bench) -> None:
    # The reboot removed everything that the plan is based on. The desired state itself can be applied.
    machine = bench.machine(cases.REPARTITION)
    machine.save()
    machine.node.inject_fault("kill", when="after", nth=2)
    assert machine.run(*machine.as_saved).code == KILLED
    machine.reboot()
    found = machine.run(*machine.as_saved)
    assert (found.code, found.error["code"]) == (20, "MOVED"), found
    assert len(machine.writes()) == 2
    machine.assert_finishes()
