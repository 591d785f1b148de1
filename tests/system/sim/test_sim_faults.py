"""Seeded failures have the documented effect and are gone once used up."""

from __future__ import annotations

from typing import get_args

import pytest

from aliquot.sim.call_names import KNOWN
from aliquot.sim.faults import KEYS
from aliquot.sim.lifecycle import WRITE_CALLS
from aliquot.sim.session import CallerGoneError
from aliquot.sim.state import FaultKind
from system.sim.memory import Memory


def fault(node: Memory, kind: str, **facts: object) -> None:
    code, text = node.control("fault", kind=kind, **facts)
    assert code == 0, text


def test_busy_for_some_calls() -> None:
    node = Memory("a100-sxm4-40gb*2")
    fault(node, "busy", gpu=0, calls=2)
    assert [node.create(9) for _ in range(3)] == [-19, -19, 2]
    assert node.create(9, gpu=1) == 2


def test_busy_for_some_time_on_one_instance() -> None:
    node = Memory("a100-sxm4-40gb")
    first, second = node.create(9), node.create(9)
    fault(node, "busy", gpu=0, instance=first, seconds=3)
    assert node.ask(f"GpuInstanceDestroy 0 {first} -1") == [19]
    assert node.ask(f"GpuInstanceDestroy 0 {second} -1") == [0]
    node.now = 3.5
    assert node.ask(f"GpuInstanceDestroy 0 {first} -1") == [0]


def test_reset_pending() -> None:
    node = Memory("a100-sxm4-40gb", mig=False)
    fault(node, "reset-pending", gpu=0)
    assert node.ask("DeviceSetMigMode 0 -1 -1 1") == [0, 19]
    assert node.ask("DeviceGetMigMode 0 -1 -1") == [0, 0, 1]
    node.ask("bye")
    assert node.control("reset", gpu=0)[0] == 0
    node.link = node.open(300)
    assert node.ask("DeviceGetMigMode 0 -1 -1") == [0, 1, 1]
    assert node.ask("DeviceSetMigMode 0 -1 -1 0") == [0, 0], "the reset ended the fault"


def test_a_lost_gpu_answers_nothing_but_who_it_was() -> None:
    node = Memory("a100-sxm4-40gb*2")
    fault(node, "lost", gpu=0)
    assert node.create(9) == -15
    assert node.ask("DeviceGetMigMode 0 -1 -1") == [15]
    assert node.text("DeviceGetName 0 -1 -1") == "NVIDIA A100-SXM4-40GB"
    assert node.create(9, gpu=1) == 2
    node.control("reboot")
    node.link = node.open(300)
    assert node.ask("DeviceGetMigMode 0 -1 -1") == [0, 1, 1]


def test_lost_in_the_middle() -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "lost", gpu=0, after=2)
    assert [node.create(19) for _ in range(3)] == [13, 11, -15]


def test_half_done_creations() -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "half-create", gpu=0)
    assert node.create(9) == -999
    assert node.ask("DeviceGetGpuInstances 0 -1 -1 9") == [0, 2], "it was created nevertheless"
    assert node.calls[-2]["instance"] == 2
    fault(node, "half-create", what="compute")
    assert node.ask("GpuInstanceCreateComputeInstance 0 2 -1 2") == [999]
    assert node.ask("GpuInstanceGetComputeInstances 0 2 -1 2") == [0]
    assert node.ask("GpuInstanceCreateComputeInstance 0 2 -1 2") == [0, 0]


def test_a_call_fails_as_configured() -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "fail", call="DeviceGetMigMode", code=17, calls=1)
    assert node.ask("DeviceGetMigMode 0 -1 -1") == [17]
    assert node.ask("DeviceGetMigMode 0 -1 -1") == [0, 1, 1]
    fault(node, "fail", call="DeviceCreateGpuInstance", code=10)
    assert [node.create(9), node.create(9)] == [-10, -10]
    fault(node, "none")
    assert node.create(9) == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_kill_counts_write_calls_from_when_it_was_set(when: str) -> None:
    node = Memory("a100-sxm4-40gb")
    node.create(19)
    fault(node, "kill", when=when, nth=2)
    node.create(19)
    node.ask("DeviceGetMigMode 0 -1 -1")
    with pytest.raises(CallerGoneError):
        node.create(14)
    assert node.killed == [100]
    there = node.ask("DeviceGetGpuInstances 0 -1 -1 14")
    assert there == ([0] if when == "before" else [0, 3])
    assert node.saved is not None
    assert len(node.saved.gpus[0].instances) == (2 if when == "before" else 3), "on disk before the caller dies"


def test_acts_by_hand_are_spared() -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "kill", when="before", nth=1)
    fault(node, "busy", calls=1)
    assert node.control("create", gpu=0, profile="1g.5gb")[0] == 0
    assert node.killed == []


def test_no_rights() -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "unprivileged")
    assert node.create(9) == -4
    fault(node, "none")
    assert node.create(9) == 2


@pytest.mark.parametrize(
    "facts",
    [
        {"kind": "rain"},
        {"kind": "lost"},
        {"kind": "busy", "gpu": 0},
        {"kind": "fail", "call": "DeviceGetName"},
        {"kind": "kill", "when": "now"},
        {"kind": "busy", "gpu": 9, "calls": 1},
        {"kind": "busy", "calls": "many"},
        {"kind": "busy", "gpu": 0, "seconds": "long"},
        {"kind": "slow", "seconds": float("inf")},
        {"kind": "slow", "seconds": 0},
        {"kind": "hang", "calls": 1},
        {"kind": "hang", "gpus": 0},
        {"kind": "version-mismatch", "call": "Init"},
        {"kind": "no-effect", "call": "DeviceGetMigMode"},
        {"kind": "no-effect", "calls": 0},
        {"kind": "replace-driver", "nth": 3},
        {"kind": "replace-driver", "after": -3},
        {"kind": "xid", "gpu": 0, "code": 79, "calls": 1},
    ],
)
def test_faults_that_make_no_sense_are_refused(facts: dict[str, object]) -> None:
    node = Memory("a100-sxm4-40gb")
    code, text = node.control("fault", **facts)
    assert code == 2
    assert text
    assert node.node.faults.active == []


def test_a_call_without_effect_answers_as_if_it_had_one() -> None:
    node = Memory("a100-sxm4-40gb")
    kept = node.create(9)
    fault(node, "no-effect", gpu=0, calls=2)
    assert node.create(9) == 1
    assert node.ask(f"GpuInstanceDestroy 0 {kept} -1") == [0]
    assert node.ask("DeviceGetGpuInstances 0 -1 -1 9") == [0, kept]
    assert node.create(9) == 1, "the fault is used up"
    fault(node, "no-effect", call="GpuInstanceDestroy")
    assert node.create(19) < 0, "the fault does not hide a refusal"
    assert node.ask(f"GpuInstanceDestroy 0 {kept} -1") == [0]
    assert node.ask("DeviceGetGpuInstances 0 -1 -1 9") == [0, 1, kept]


def test_a_slow_call() -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "slow", call="DeviceGetMigMode", seconds=7, calls=1)
    for _ in range(2):
        assert node.ask("DeviceGetMigMode 0 -1 -1") == [0, 1, 1]
        assert node.ask("DeviceGetCount") == [0, 1]
    assert node.slept == [7]


def test_a_call_hangs_until_the_fault_is_cleared() -> None:
    node = Memory("a100-sxm4-40gb*2")
    fault(node, "hang", call="DeviceGetMigMode", gpu=0)
    assert node.ask("DeviceGetMigMode 1 -1 -1") == [0, 1, 1], "another GPU answers"
    assert node.ask("DeviceGetName 0 -1 -1") == [0], "another call returns"
    node.when_slept = lambda: node.control("fault", kind="none")
    assert node.ask("DeviceGetMigMode 0 -1 -1") == [0, 1, 1]
    assert node.slept, "it did not wait"


@pytest.mark.parametrize(
    "line", ["DeviceGetCount", "DeviceGetName 0 -1 -1", "DeviceCreateGpuInstance 0 -1 -1 9", "Snapshot", "bye"]
)
def test_every_call_hangs(line: str) -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "hang")
    waiting = node.open_slowly(200, gone=lambda: bool(node.slept))
    with pytest.raises(CallerGoneError):
        waiting.answer("hello session-200")
    node.slept.clear()
    node.link.caller_ended = lambda: bool(node.slept)
    with pytest.raises(CallerGoneError):
        node.link.answer(line)


def test_a_call_that_hangs_ends_with_its_caller_and_does_nothing() -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "hang", call="DeviceCreateGpuInstance")
    node.link.caller_ended = lambda: bool(node.slept)
    with pytest.raises(CallerGoneError):
        node.create(9)
    node.control("fault", kind="none")
    assert node.ask("DeviceGetGpuInstances 0 -1 -1 9") == [0]


def test_library_and_driver_do_not_match() -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "version-mismatch")
    assert node.ask("DeviceGetCount") == [0, 1], "an open session goes on"
    assert node.open_slowly(200).answer("hello session-200") == "18"
    node.control("fault", kind="none")
    assert node.open(200).answer("DeviceGetCount") == "0 1"


def test_the_driver_is_replaced_under_an_open_session() -> None:
    node = Memory("a100-sxm4-40gb*2")
    assert node.create(9) == 2
    fault(node, "replace-driver", version="590.48.01", after=2)
    assert node.create(9) == 1
    assert node.create(19, gpu=1) > 0, "the call before the replacement is answered"
    assert node.ask("DeviceGetCount") == [1], "the session is invalid"
    assert node.ask("DeviceGetMigMode 0 -1 -1") == [1]
    node.link = node.open(300)
    assert node.text("SystemGetDriverVersion") == "590.48.01"
    assert node.ask("DeviceGetMigMode 0 -1 -1") == [0, 1, 1]
    assert node.ask("DeviceGetGpuInstances 0 -1 -1 9") == [0]
    fault(node, "replace-driver")
    node.link = node.open(400)
    assert node.text("SystemGetDriverVersion") == "590.44.01"


@pytest.mark.parametrize(
    ("call", "near"),
    [
        ("NoSuchCall", "the simulator has no call 'NoSuchCall'"),
        ("nvmlDeviceGetMigMode", "did you mean DeviceGetMigMode"),
        ("DeviceCreateGpuInstances", "DeviceCreateGpuInstance"),
        ("sysfswrite", "SysfsWrite"),
    ],
)
@pytest.mark.parametrize("kind", ["fail", "hang", "slow", "no-effect"])
def test_a_call_that_does_not_exist_is_refused(kind: str, call: str, near: str) -> None:
    node = Memory("a100-sxm4-40gb")
    code, text = node.control("fault", kind=kind, call=call, code=5, seconds=1)
    assert code == 2
    assert f"no call '{call}'" in text
    assert near in text
    assert not node.node.faults.active


@pytest.mark.parametrize("call", ["Init", "Shutdown", "SystemGetDriverVersion", "DeviceGetCount", "Snapshot"])
def test_calls_that_are_about_no_gpu_fail_too(call: str) -> None:
    node = Memory("a100-sxm4-40gb")
    fault(node, "fail", call=call, code=999)
    answer = node.open_slowly(200).answer("hello session-200") if call == "Init" else node.link.answer(call)
    assert answer == "999"


def test_only_calls_that_exist_are_known() -> None:
    assert {*WRITE_CALLS, "Init", "Shutdown", "DeviceGetTotalEccErrors", "EventSetWait"} <= KNOWN


def test_every_kind_of_fault_says_what_it_takes() -> None:
    assert set(KEYS) == set(get_args(FaultKind))
