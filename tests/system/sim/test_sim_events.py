"""Events: each once per set, from the creation of the set on, for the requested GPUs and kinds."""

from __future__ import annotations

import pytest

from system.sim.memory import Memory

XID, CLOCK = 8, 16


def raise_xid(node: Memory, **facts: object) -> None:
    code, text = node.control("fault", kind="xid", **facts)
    assert code == 0, text


def test_a_set_sees_what_came_after_it_once_and_in_order() -> None:
    node = Memory("a100-sxm4-40gb*2")
    raise_xid(node, gpu=0, code=31)
    code, seen = node.ask("EventSetCreate")
    assert code == 0
    raise_xid(node, gpu=0, code=48)
    raise_xid(node, gpu=1, code=79)
    first = node.ask(f"EventSetWait {seen} 0 0 {XID} 1 {XID}")
    assert first[2:] == [0, XID, 48, -1, -1]
    second = node.ask(f"EventSetWait {first[1]} 0 0 {XID} 1 {XID}")
    assert second[2:] == [1, XID, 79, -1, -1]
    assert node.ask(f"EventSetWait {second[1]} 0 0 {XID} 1 {XID}") == [10]


def test_other_gpus_and_other_kinds_are_passed_over() -> None:
    node = Memory("a100-sxm4-40gb*2")
    raise_xid(node, gpu=1, code=48)
    assert node.ask(f"EventSetWait 0 0 0 {XID}") == [10]
    assert node.ask(f"EventSetWait 0 0 1 {CLOCK}") == [10]
    assert node.ask(f"EventSetWait 0 0 1 {XID | CLOCK}")[2:] == [1, XID, 48, -1, -1]


def test_an_event_is_attributed_to_an_instance() -> None:
    node = Memory("a100-sxm4-40gb")
    instance = node.create(9)
    node.ask(f"GpuInstanceCreateComputeInstance 0 {instance} -1 2")
    raise_xid(node, gpu=0, code=95, instance=f"{instance}/0")
    raise_xid(node, gpu=0, code=95, instance=instance)
    first = node.ask(f"EventSetWait 0 0 0 {XID}")
    assert first[4:] == [95, instance, 0]
    assert node.ask(f"EventSetWait {first[1]} 0 0 {XID}")[4:] == [95, instance, -1]


def test_a_gpu_that_is_lost_says_so() -> None:
    node = Memory("a100-sxm4-40gb")
    assert node.control("fault", kind="lost", gpu=0)[0] == 0
    assert node.ask(f"EventSetWait 0 0 0 {XID}")[4] == 79


def test_waiting_without_an_event_leaves_no_line_in_the_log() -> None:
    node = Memory("a100-sxm4-40gb")
    before = len(node.calls)
    assert node.ask(f"EventSetWait 0 1 0 {XID}") == [10]
    assert len(node.calls) == before


@pytest.mark.parametrize(
    "facts", [{"code": 48}, {"gpu": 0}, {"gpu": 0, "code": "many"}, {"gpu": 0, "code": 48, "instance": 7}]
)
def test_an_xid_that_makes_no_sense_is_refused(facts: dict[str, object]) -> None:
    node = Memory("a100-sxm4-40gb")
    assert node.control("fault", kind="xid", **facts)[0] == 2
