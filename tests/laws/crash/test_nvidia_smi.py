"""The same kills with a driver that is called by commands: the kill hits aliquot, or the nvidia-smi that it started."""

from __future__ import annotations

import signal

import pytest

from laws.crash import cases
from laws.crash.bench import FIRST, KILLED, LAST, Bench, Case, Machine, Trip

CASES = [cases.REPARTITION, pytest.param(cases.SPLIT, marks=pytest.mark.slow)]


def machine(bench: Bench, case: Case) -> Machine:
    found = bench.machine(case)
    found.backend = "smi"
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_the_same_driver_calls_as_through_the_library(bench: Bench, case: Case) -> None:
    # Except for modes, each action is one call: none is repeated, and the order is the same.
    library, commands = bench.machine(case), machine(bench, case)
    assert (library.apply().code, commands.apply().code) == (0, 0)
    shown = [
        [(c["call"], c["gpu"], c["instance"], c.get("profile")) for c in each.writes()] for each in (library, commands)
    ]
    assert shown[0] == shown[1]
    commands.assert_finished()


def _killed(bench: Bench, case: Case, trip: Trip) -> None:
    cut = machine(bench, case)
    found = cut.apply(trip)
    assert found.code == KILLED, found
    assert len(cut.writes()) == min(max(0, trip.nth - FIRST - 1), case.calls)
    cut.assert_finishes()


@pytest.mark.slow
@pytest.mark.parametrize("case", [cases.REPARTITION, cases.SPLIT], ids=lambda c: c.name)
@pytest.mark.parametrize("when", ["before", "after"])
def test_aliquot_is_killed_at_every_fsync_and_run_again(bench: Bench, case: Case, when: str) -> None:
    for nth in range(1, FIRST + case.calls + LAST + 1):
        _killed(bench, case, Trip(nth, when))


@pytest.mark.parametrize("nth", [FIRST + 1, FIRST + 4, FIRST + 7])
def test_aliquot_is_killed_between_two_commands_and_run_again(bench: Bench, nth: int) -> None:
    _killed(bench, cases.REPARTITION, Trip(nth, "after"))


@pytest.mark.parametrize("nth", [2, 5, *[pytest.param(n, marks=pytest.mark.slow) for n in (1, 3, 4, 6)]])
@pytest.mark.parametrize("when", ["after", pytest.param("before", marks=pytest.mark.slow)])
def test_nvidia_smi_is_killed_at_a_write(bench: Bench, when: str, nth: int) -> None:
    # An end without output counts as a refusal: the change is rolled back or stays pending, and the next run finishes
    # it.
    cut = machine(bench, cases.REPARTITION)
    cut.node.inject_fault("kill", when=when, nth=nth)
    found = cut.apply()
    assert (found.code, found.document["status"]) == (40, "undone"), found
    assert f"ended with status {-signal.SIGKILL}" in found.err + found.out
    cut.node.inject_fault("none")
    cut.assert_previous()
    cut.assert_finishes()


def test_ctrl_c_goes_back(bench: Bench) -> None:
    cut = machine(bench, cases.REPARTITION)
    found = cut.apply(Trip(FIRST + 3, "after", signal.SIGINT))
    assert found.code == 130, found
    cut.assert_previous()
    cut.assert_finishes()
