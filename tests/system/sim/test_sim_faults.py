"""Seeded failures do what they say, and once used up they are gone."""

from __future__ import annotations

import pytest

from aliquot.sim.node import Gone
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
    assert node.ask("DeviceGetGpuInstances 0 -1 -1 9") == [0, 2], "it was made all the same"
    assert node.calls[-2]["instance"] == 2
    fault(node, "half-create", what="compute")
    assert node.ask("GpuInstanceCreateComputeInstance 0 2 -1 2") == [999]
    assert node.ask("GpuInstanceGetComputeInstances 0 2 -1 2") == [0]
    assert node.ask("GpuInstanceCreateComputeInstance 0 2 -1 2") == [0, 0]


def test_a_call_fails_as_told() -> None:
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
    with pytest.raises(Gone):
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
    ],
)
def test_faults_that_make_no_sense_are_refused(facts: dict[str, object]) -> None:
    node = Memory("a100-sxm4-40gb")
    code, text = node.control("fault", **facts)
    assert code == 2
    assert text
    assert node.node.faults.active == []
