"""Each driver call fails once, in every step of an apply: exit 40, and the previous state is restored.

The tripwire stops the process when its n-th intent is on disk. The test then injects the error for exactly the next
call.
"""

from __future__ import annotations

import signal
from typing import Any

import pytest

from laws.crash import cases
from laws.crash.bench import FIRST, Bench, Case, Machine, Trip, finish

UNKNOWN, IN_USE, INSUFFICIENT_RESOURCES, LOST = 999, 19, 23, 15

_known: dict[str, list[str]] = {}


def _calls(bench: Bench, case: Case) -> list[str]:
    """Return the plan's driver calls in order, from a run without errors."""
    if case.name not in _known:
        machine = bench.machine(case)
        assert machine.apply().code == 0
        _known[case.name] = [c["call"] for c in machine.writes()]
    return _known[case.name]


def _each_call() -> list[object]:
    quick = {(cases.REPARTITION, n) for n in (0, 1, 3, 4, 5)} | {(cases.MODE, n) for n in range(4)} | {(cases.SPLIT, 1)}
    return [
        pytest.param(case, n, id=f"{case.name}: {n}", marks=() if (case, n) in quick else pytest.mark.slow)
        for case in cases.ONE_WORKER
        for n in range(case.calls)
    ]


def _shown(machine: Machine) -> list[Any]:
    """Return the geometry that ``aliquot show`` reports."""
    found = machine.run("show", "-o", "json")
    assert found.code == 0, found
    return [
        (g["pci"], g["mig"]["current"], g["mig"]["pending"], sorted(_parts(i) for i in g["instances"]))
        for g in found.document["gpus"]
    ]


def _parts(instance: dict[str, Any]) -> tuple[Any, ...]:
    inside = sorted((c["placement"], c["profile_id"]) for c in instance["compute_instances"])
    return instance["placement"], instance["profile_id"], inside


@pytest.mark.parametrize(("case", "step"), _each_call())
def test_a_call_that_fails_leads_back(bench: Bench, case: Case, step: int) -> None:
    name = _calls(bench, case)[step]
    machine = bench.machine(case)
    before = _shown(machine)
    running = machine.held_up(FIRST + step + 1)
    assert len(machine.writes()) == step
    machine.node.inject_fault("fail", call=name, code=UNKNOWN, calls=1)
    found = finish(running)
    assert (found.code, found.document["status"]) == (40, "undone"), found
    assert found.document["verified"] is False
    assert len(machine.writes()) > step, "the failing call was made"
    machine.assert_previous()
    assert _shown(machine) == before
    machine.assert_finishes()


@pytest.mark.parametrize("what", ["gpu", "compute"])
def test_a_creation_that_goes_half_wrong_leaves_nothing_behind(bench: Bench, what: str) -> None:
    # The driver creates the instance and reports an error, or creates the GPU instance without its compute instance.
    machine = bench.machine(cases.REPARTITION)
    machine.node.inject_fault("half-create", what=what)
    found = machine.apply()
    assert (found.code, found.document["status"]) == (40, "undone"), found
    machine.assert_previous()
    machine.assert_finishes()


def test_a_destruction_without_effect_is_noticed_by_the_fresh_read(bench: Bench) -> None:
    # Every call reports success. Only a new read of the GPUs shows that the last one changed nothing.
    machine = bench.machine(cases.CLEAR)
    running = machine.held_up(FIRST + cases.CLEAR.calls)
    machine.node.inject_fault("no-effect", calls=1)
    found = finish(running)
    assert (found.code, found.document["status"]) == (40, "undone"), found
    assert "a fresh read disagrees" in found.error["message"]
    assert len(machine.writes()) > cases.CLEAR.calls
    machine.assert_previous()
    machine.assert_finishes()


def test_a_creation_without_effect_leads_back(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    running = machine.held_up(FIRST + cases.REPARTITION.calls)
    machine.node.inject_fault("no-effect", calls=1)
    found = finish(running)
    assert (found.code, found.document["status"]) == (40, "undone"), found
    machine.assert_previous()


@pytest.mark.parametrize("code", [INSUFFICIENT_RESOURCES, LOST])
def test_other_codes_lead_back_as_well(bench: Bench, code: int) -> None:
    machine = bench.machine(cases.REPARTITION)
    machine.node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=code, calls=1)
    found = machine.apply()
    assert (found.code, found.document["status"]) == (40, "undone"), found
    machine.assert_previous()


def test_a_driver_that_is_replaced_in_the_middle_ends_the_change(bench: Bench) -> None:
    # Sessions and handles are invalid from the third call on, also for the new read and the rollback. The error reports
    # that, and a repeat of the same command applies everything.
    machine = bench.machine(cases.REBUILD)
    machine.node.inject_fault("replace-driver", after=3, version="590.48.01")
    found = machine.apply()
    assert found.code == 40, found
    assert "NVML return code 1 (UNINITIALIZED)" in found.error["details"]
    assert machine.node.show()["driver"] == "590.48.01"
    machine.assert_finishes()


def test_a_way_back_that_fails_too_is_reported_and_finished_by_the_next_run(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    machine.node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", code=UNKNOWN, calls=100)
    found = machine.apply()
    assert (found.code, found.document["status"]) == (40, "partial"), found
    assert found.document["drift"], "the output contains the differences from before"
    assert any("undoing stopped" in line for line in found.document["undone"])
    machine.assert_untouched()
    machine.node.inject_fault("none")
    machine.assert_finishes()


@pytest.mark.parametrize("case", [cases.REPARTITION, cases.SPLIT, cases.OFF], ids=lambda c: c.name)
def test_each_kind_of_call_in_use_for_a_third_of_a_second(bench: Bench, case: Case) -> None:
    # The driver releases an ended process late: six refusals (0.3 s) before each kind of call.
    kinds = set(_calls(bench, case))
    machine = bench.machine(case)
    for name in kinds:
        machine.node.inject_fault("fail", call=name, code=IN_USE, calls=6)
    found = machine.apply()
    assert found.code == 0, found
    assert len([c for c in machine.writes() if c["rc"] == IN_USE]) == 6 * len(kinds)
    machine.assert_finished()


@pytest.mark.parametrize("step", range(cases.REPARTITION.calls))
def test_in_use_for_a_while_at_every_call(bench: Bench, step: int) -> None:
    machine = bench.machine(cases.REPARTITION)
    running = machine.held_up(FIRST + step + 1)
    machine.node.inject_fault("busy", gpu=0, seconds=0.3)
    assert finish(running).code == 0
    assert any(c["rc"] == IN_USE for c in machine.writes())
    machine.assert_finished()


def test_in_use_for_ever_leads_back(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    machine.node.inject_fault("fail", call="GpuInstanceDestroy", code=IN_USE, calls=10_000)
    found = machine.apply()
    assert (found.code, found.error["code"]) == (20, "IN_USE"), found
    machine.assert_previous()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("fsync", [1, 3, *[pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 5, 6)]])
def test_a_signal_goes_back(bench: Bench, number: signal.Signals, fsync: int) -> None:
    # Covers Ctrl-C, ``systemctl stop``, ``timeout``, and a dropped connection.
    machine = bench.machine(cases.REPARTITION)
    found = machine.apply(Trip(FIRST + fsync, "after", number))
    assert found.code == 128 + number, found
    assert found.error["code"] == "INTERRUPTED"
    machine.assert_previous()
    machine.assert_finishes()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(bench: Bench, number: signal.Signals) -> None:
    # A background job of a script starts with SIGINT ignored, a command under nohup with SIGHUP.
    machine = bench.machine(cases.REPARTITION)
    found = finish(machine.begin(*machine.apply_arguments, trip=Trip(FIRST + 3, "after", number), ignoring=number))
    assert found.code == 0, found
    machine.assert_finished()
