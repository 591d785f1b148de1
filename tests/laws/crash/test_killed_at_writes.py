"""Kills before and after each driver write of an apply. A new process with the same request finishes it."""

from __future__ import annotations

import pytest

from laws.crash import cases
from laws.crash.bench import KILLED, Bench, Case

QUICK = (cases.REPARTITION, cases.MODE, cases.SPLIT)


def _every(when: str) -> list[object]:
    return [
        pytest.param(case, when, id=f"{when}: {case.name}", marks=() if case in QUICK else pytest.mark.slow)
        for case in cases.ALL
    ]


@pytest.mark.parametrize(("case", "when"), [*_every("before"), *_every("after")])
def test_killed_at_every_write_and_run_again(bench: Bench, case: Case, when: str) -> None:
    for nth in range(1, case.calls + 1):
        machine = bench.machine(case)
        machine.node.inject_fault("kill", when=when, nth=nth)
        found = machine.apply()
        assert found.code == KILLED, found
        assert len(machine.writes()) >= nth - (when == "before")
        machine.assert_finishes()
    machine = bench.machine(case)
    machine.node.inject_fault("kill", when=when, nth=case.calls + 1)
    assert machine.apply().code == 0
    assert len(machine.writes()) == case.calls
    machine.assert_finished()


@pytest.mark.parametrize(
    "case", [cases.REPARTITION, pytest.param(cases.PAIR, marks=pytest.mark.slow)], ids=lambda c: c.name
)
def test_killed_again_and_again_each_run_gets_one_call_further(bench: Bench, case: Case) -> None:
    machine = bench.machine(case)
    kills = 0
    while True:
        machine.node.inject_fault("none")
        machine.node.inject_fault("kill", when="after", nth=1)
        found = machine.apply()
        if found.code == 0:
            break
        assert found.code == KILLED, found
        kills += 1
        assert kills <= 2 * case.calls
    assert kills >= case.calls // 2
    machine.assert_finished()


@pytest.mark.parametrize(
    ("case", "nth"), [(cases.REPARTITION, 1), (cases.REPARTITION, 4), (cases.MODE, 1), (cases.MODE, 2)]
)
def test_killed_then_rebooted(bench: Bench, case: Case, nth: int) -> None:
    # No instances are left, and the journal belongs to another boot.
    machine = bench.machine(case)
    machine.node.inject_fault("kill", when="after", nth=nth)
    assert machine.apply().code == KILLED
    machine.reboot()
    machine.assert_finishes()


@pytest.mark.parametrize("case", cases.ALL, ids=lambda c: c.name)
def test_a_satisfied_request_makes_no_write_call(bench: Bench, case: Case) -> None:
    machine = bench.machine(case)
    assert machine.apply().code == 0
    assert len(machine.writes()) == case.calls
    with open(machine.journal, "rb") as file:
        journal = file.read()
    found = machine.apply()
    assert (found.code, found.document["status"], found.document["driver_calls"]) == (0, "nothing", 0)
    assert len(machine.writes()) == case.calls
    with open(machine.journal, "rb") as file:
        assert file.read() == journal, "a run that does nothing leaves no record"
