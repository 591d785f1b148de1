"""Events during an apply: a GPU falls off the bus, the simulator's server dies, another process takes an instance."""

from __future__ import annotations

import os
import signal

import pytest

from laws.crash import cases
from laws.crash.bench import FIRST, Bench, Geometry, Machine, finish
from support.processes import ended, until


def _on(machine: Machine, gpu: int, geometry: Geometry) -> Geometry:
    return [row for row in geometry if row[0] == machine.pcis[gpu]]


def _lose(bench: Bench, gpu: int, after: int) -> Machine:
    """Lose a GPU at one of the calls. The other GPU is rolled back, and the output names the lost one."""
    machine = bench.machine(cases.PAIR)
    machine.node.inject_fault("lost", gpu=gpu, after=after)
    found = machine.apply()
    assert found.code == 40, found
    assert found.document["status"] == "partial"
    assert found.error["code"] == "GPU_LOST"
    assert machine.pcis[gpu] in found.error["message"]
    assert "fallen off the bus" in found.error["message"]
    other = 1 - gpu
    assert _on(machine, other, machine.geometry()) == _on(machine, other, machine.previous)
    machine.assert_untouched()
    return machine


@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_a_gpu_lost_in_the_middle(bench: Bench, after: int) -> None:
    machine = _lose(bench, 0, after)
    again = machine.apply()
    assert again.code in (20, 40), again
    assert machine.pcis[0] in again.err + again.out
    machine.reboot()
    machine.assert_finishes()


def test_a_gpu_lost_with_a_held_instance(bench: Bench) -> None:
    _lose(bench, 1, 2)


def test_a_gpu_that_cannot_go_back_does_not_keep_the_other_from_it(bench: Bench) -> None:
    machine = bench.machine(cases.PAIR)
    machine.node.inject_fault("fail", call="DeviceCreateGpuInstanceWithPlacement", gpu=0, code=999, calls=100)
    found = machine.apply()
    assert (found.code, found.document["status"]) == (40, "partial"), found
    assert {d["gpu"] for d in found.document["drift"]} == {machine.pcis[0]}
    assert _on(machine, 1, machine.geometry()) == _on(machine, 1, machine.previous)
    machine.node.inject_fault("none")
    machine.assert_finishes()


def _kill_server(bench: Bench) -> None:
    server = bench.server()
    os.kill(server, signal.SIGKILL)
    until(lambda: ended(server))


@pytest.mark.parametrize("fsync", [1, 3, 6, 9, *[pytest.param(n, marks=pytest.mark.slow) for n in (2, 4, 5, 7, 8)]])
def test_the_server_killed_between_two_calls(bench: Bench, fsync: int) -> None:
    # The simulator restarts with every change that it had confirmed. No driver call is made twice.
    machine = bench.machine(cases.REPARTITION)
    running = machine.held_up(fsync)
    _kill_server(bench)
    found = finish(running)
    if found.code == 0:
        assert len([c for c in machine.writes() if c["rc"] == 0]) == cases.REPARTITION.calls
        machine.assert_finished()
        return
    assert (found.code, found.document["status"]) == (40, "undone"), found
    machine.assert_previous()
    machine.assert_finishes()


def test_the_server_and_the_apply_killed_together(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    running = machine.held_up(6)
    running.kill()
    _kill_server(bench)
    assert finish(running).code < 0
    machine.assert_finishes()


@pytest.mark.parametrize("fsync", [3, 8])
def test_a_process_takes_an_instance_that_is_to_go(bench: Bench, fsync: int) -> None:
    # A process starts on an instance between the plan and the action: the instance is not destroyed, and the apply
    # rolls back.
    machine = bench.machine(cases.REBUILD)
    running = machine.held_up(fsync)
    last = max(machine.node.show()["gpus"][0]["instances"], key=lambda i: str(i["placement"]))
    machine.node.hold(0, last["id"])
    machine.forget()
    machine.untouched = {(machine.pcis[0], last["id"])}
    found = finish(running)
    assert (found.code, found.error["code"]) == (20, "IN_USE"), found
    assert found.document["status"] == "undone"
    machine.assert_previous()
    machine.node.release(0, last["id"])
    machine.forget()
    machine.assert_finishes()


def test_another_process_destroys_what_is_to_go(bench: Bench) -> None:
    # The instance is gone as requested, but another process destroyed it: this apply rolls back, and the next one
    # finishes.
    machine = bench.machine(cases.REBUILD)
    running = machine.held_up(FIRST + 1, when="before")
    last = max(machine.node.show()["gpus"][0]["instances"], key=lambda i: str(i["placement"]))
    machine.node.destroy(0, last["id"])
    found = finish(running)
    assert (found.code, found.error["code"]) == (20, "IN_USE"), found
    machine.assert_previous()
    machine.assert_finishes()


def test_no_permission_changes_nothing(bench: Bench) -> None:
    machine = bench.machine(cases.REPARTITION)
    machine.node.inject_fault("unprivileged")
    found = machine.apply()
    assert (found.code, found.error["code"]) == (20, "NO_PERMISSION"), found
    assert machine.geometry() == machine.previous
    assert [c for c in machine.writes() if c["rc"] == 0] == []
    machine.node.inject_fault("none")
    machine.assert_finishes()
