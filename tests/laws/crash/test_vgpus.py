"""Changes with vGPUs in every vGPU framework: kills before and after each write, refused writes, VMs that hold
vGPUs.
"""

from __future__ import annotations

import errno
import signal

import pytest

from laws.crash.bench import KILLED, Bench, Trip, finish
from laws.crash.vgpu_bench import ALL, BACKED, MDEV, OFF, SRIOV, VENDOR, Environment, Hosts, calls

SLOW = pytest.mark.slow
FRAMEWORKS = [MDEV, pytest.param(SRIOV, marks=SLOW), pytest.param(VENDOR, marks=SLOW)]


@pytest.fixture
def hosts(bench: Bench) -> Hosts:
    """Return hosts for the test."""
    return Hosts(bench)


def _name(value: object) -> str:
    return value.name if isinstance(value, Environment) else str(value)


def _every() -> list[object]:
    quick = {("after", MDEV), ("before", OFF), ("after", VENDOR)}
    return [
        pytest.param(
            environment, when, id=f"{when}: {environment.name}", marks=() if (when, environment) in quick else SLOW
        )
        for environment in ALL
        for when in ("before", "after")
    ]


@pytest.mark.parametrize(("environment", "when"), _every())
def test_killed_at_every_write_and_run_again(hosts: Hosts, environment: Environment, when: str) -> None:
    # The end is the same as without a kill, and the VM keeps its vGPU.
    total = calls(hosts, environment)
    assert total >= 3
    cut = 0
    for nth in range(1, total + 1):
        machine = hosts.machine(environment)
        machine.node.inject_fault("kill", when=when, nth=nth)
        cut += machine.killed(machine.apply())
        machine.assert_finishes()
    assert cut, "no kill hit aliquot itself"


@pytest.mark.parametrize("environment", ALL, ids=_name)
def test_a_satisfied_request_makes_no_write(hosts: Hosts, environment: Environment) -> None:
    machine = hosts.machine(environment)
    assert machine.apply().code == 0
    count = len(machine.writes())
    found = machine.apply()
    assert (found.code, found.document["status"], found.document["driver_calls"]) == (0, "nothing", 0)
    assert len(machine.writes()) == count
    machine.assert_finished()


@pytest.mark.parametrize(
    "environment", [MDEV, OFF, *[pytest.param(w, marks=SLOW) for w in (SRIOV, VENDOR, BACKED)]], ids=_name
)
def test_each_write_refused_leads_back(hosts: Hosts, environment: Environment) -> None:
    # A write to sysfs fails: the previous state is restored, with the previous UUIDs of vGPUs.
    total = calls(hosts, environment)
    met = 0
    for nth in range(1, total + 1):
        machine = hosts.machine(environment)
        machine.node.inject_fault("fail", call="SysfsWrite", code=errno.EIO, nth=nth, calls=1)
        found = machine.apply()
        if found.code == 0:
            break
        met += 1
        assert (found.code, found.document["status"]) == (40, "undone"), found
        machine.assert_previous()
        machine.node.inject_fault("none")
        machine.assert_finishes()
    assert met >= 2


@pytest.mark.parametrize("environment", [OFF, pytest.param(VENDOR, marks=SLOW)], ids=_name)
def test_a_failure_after_the_third_of_five(hosts: Hosts, environment: Environment) -> None:
    machine = hosts.machine(environment)
    path = "current_vgpu_type" if environment is VENDOR else "/create"
    machine.node.inject_fault("fail", call="SysfsWrite", code=errno.EIO, path=path, nth=4, calls=1)
    found = machine.apply()
    assert (found.code, found.document["status"]) == (40, "undone"), found
    assert sum("is gone again" in line for line in found.document["undone"]) >= 2
    machine.assert_previous()
    machine.assert_finishes()


@pytest.mark.parametrize("environment", FRAMEWORKS, ids=_name)
def test_a_machine_that_starts_meanwhile_is_not_ended(hosts: Hosts, environment: Environment) -> None:
    # After the plan, a VM takes a vGPU that is to be destroyed: nothing is destroyed under it, and the apply rolls
    # back.
    machine = hosts.machine(environment)
    running = machine.held_up(2)
    other = machine.vgpus()[1]
    machine.node.close()
    assert machine.run("sim", "vm", "start", "late", other["uuid"] or other["function"]).code == 0
    machine.holders = machine.processes()
    found = finish(running)
    assert (found.code, found.error["code"]) == (20, "IN_USE"), found
    assert "late" in found.error["message"]
    machine.assert_previous()
    assert machine.run("sim", "vm", "stop", "late").code == 0
    machine.holders = machine.processes()
    machine.assert_finishes()


@pytest.mark.parametrize("environment", FRAMEWORKS, ids=_name)
def test_held_vgpus_refuse_wait_and_force(hosts: Hosts, environment: Environment) -> None:
    machine = hosts.machine(environment)
    none = ("apply", "--gpu", "0", "--vgpu", "none", "-o", "json")
    refused = machine.run(*none)
    assert refused.code == 20, refused
    assert refused.document["blockers"][0]["holders"][0]["name"] == "win10"
    machine.assert_previous()
    waited = machine.run(*none, "--policy", "wait", "--timeout", "0.5")
    assert (waited.code, waited.error["code"]) == (20, "IN_USE"), waited
    machine.assert_previous()
    assert machine.run(*none, "--policy", "force").code == 0
    assert machine.vgpus() == []
    assert machine.node.show()["vms"] == []


@pytest.mark.parametrize(
    "environment", [MDEV, *[pytest.param(w, marks=SLOW) for w in (SRIOV, VENDOR, BACKED)]], ids=_name
)
def test_the_same_after_a_reboot_in_one_apply(hosts: Hosts, environment: Environment) -> None:
    # The same vGPUs with the same UUIDs return, by a request for the same file and by the boot record.
    machine = hosts.machine(environment)
    assert machine.apply().code == 0
    wanted = machine.geometry()
    for words in (machine.apply_arguments, ("restore", "--boot", "-o", "json")):
        machine.node.reboot()
        machine.mine, machine.holders = set(), []
        assert machine.geometry() != wanted
        found = machine.run(*words)
        assert (found.code, found.document["status"]) == (0, "done"), found
        assert machine.geometry() == wanted


@pytest.mark.parametrize("nth", [1, 3, *[pytest.param(n, marks=SLOW) for n in (2, 4, 5)]])
def test_ctrl_c_goes_back(hosts: Hosts, nth: int) -> None:
    machine = hosts.machine(OFF)
    found = machine.apply(trip=Trip(nth + 2, "after", signal.SIGINT))
    assert found.code == 130, found
    machine.assert_previous()
    machine.assert_finishes()


def test_killed_in_the_middle_then_rebooted(hosts: Hosts) -> None:
    machine = hosts.machine(MDEV)
    machine.node.inject_fault("kill", when="after", nth=2)
    assert machine.killed(machine.apply())
    machine.node.reboot()
    machine.mine, machine.holders = set(), []
    machine.assert_finishes()


@pytest.mark.parametrize("when", ["before", "after"])
def test_passing_through_killed_at_every_write_and_run_again(hosts: Hosts, when: str) -> None:
    # The GPU always has a driver after the next run, and is bound to its own driver in the end.
    out, back = ("passthrough", "enable", "0", "-o", "json"), ("passthrough", "disable", "0", "-o", "json")
    for words in (out, back):
        for nth in range(1, 9):
            machine = hosts.machine(OFF)
            if words is back:
                assert machine.run(*out).code == 0
            machine.node.inject_fault("kill", when=when, nth=nth)
            found = machine.run(*words)
            assert found.code in (KILLED, 0), found
            again = machine.run(*words)
            assert again.code == 0, again
            assert machine.node.show()["gpus"][0]["driver"] == ("vfio-pci" if words is out else "nvidia")
            machine.node.inject_fault("none")
            assert machine.run(*back).code == 0
            assert machine.geometry() == machine.previous
            if found.code == 0:
                assert nth > 2
                break
