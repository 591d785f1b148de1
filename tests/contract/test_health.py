"""XIDs and the devices that they make unhealthy: NVML and the other sources give the same answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aliquot.core.model.xids import XidPolicy
from aliquot.hardware.nvml.backend import NvmlBackend
from aliquot.hardware.nvml.health import Health
from aliquot.node.simulated.backend import SimBackend
from contract.conftest import KINDS, Machine

Start = Callable[[str], Machine]


def watched(node: Machine, kind: str, policy: XidPolicy | None = None) -> tuple[NvmlBackend | SimBackend, Health]:
    backend = node.open(kind)
    assert isinstance(backend, NvmlBackend | SimBackend)
    health = backend.health(policy or XidPolicy())
    assert health.poll(backend.read()) == frozenset()
    return backend, health


def seven(node: Machine) -> None:
    node.node.set_mode(0, True)
    for _ in range(7):
        node.node.create(0, "1g.5gb")


@pytest.mark.parametrize("kind", KINDS)
def test_an_xid_of_an_instance_concerns_that_one_of_seven(machine: Start, kind: str) -> None:
    # Each instance in turn. k8s-device-plugin knew one MIG device per GPU (issue 1929).
    node = machine("a100-sxm4-40gb*2")
    seven(node)
    backend, health = watched(node, kind)
    inventory = backend.read()
    devices = {i.id: i.compute_instances[0].uuid for i in inventory.gpus[0].instances}
    assert len(devices) == 7
    seen: set[str] = set()
    for instance, uuid in devices.items():
        node.node.inject_fault("xid", gpu=0, code=95, instance=f"{instance}/0")
        seen.add(uuid)
        assert health.poll(inventory) == seen
    assert [x.code for x in health.active_xids] == [95] * 7


@pytest.mark.parametrize("kind", KINDS)
def test_an_xid_of_a_gpu_concerns_all_of_it_until_it_is_reset(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb*2")
    seven(node)
    backend, health = watched(node, kind)
    inventory = backend.read()
    node.node.inject_fault("xid", gpu=1, code=48)
    node.node.inject_fault("xid", gpu=0, code=79)
    assert health.poll(inventory) == {g.uuid for g in inventory.gpus}
    assert health.poll(inventory) == {g.uuid for g in inventory.gpus}, "it lasts"
    health.forget(inventory.gpus[0].pci)
    assert health.poll(inventory) == {inventory.gpus[1].uuid}
    assert [str(x) for x in health.active_xids] == [f"XID 48 on {inventory.gpus[1].pci}"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_ends_with_its_instance(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    seven(node)
    backend, health = watched(node, kind)
    gone, kept = [i.id for i in backend.read().gpus[0].instances[:2]]
    for instance in (gone, kept):
        node.node.inject_fault("xid", gpu=0, code=95, instance=instance)
    assert len(health.poll(backend.read())) == 2
    node.node.destroy(0, gone)
    assert len(health.poll(backend.read())) == 1
    assert node.node.create(0, "1g.5gb") == gone, "it has the same id again"
    assert [x.instance for x in health.active_xids] == [kept]
    health.forget(backend.read().gpus[0].pci, kept)
    assert health.poll(backend.read()) == frozenset()


@pytest.mark.parametrize("kind", KINDS)
def test_application_faults_and_what_was_before_do_not_count(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    node.node.inject_fault("xid", gpu=0, code=79)
    backend, health = watched(node, kind)
    for code in (13, 31, 43, 45, 68, 109):
        node.node.inject_fault("xid", gpu=0, code=code)
    assert health.poll(backend.read()) == frozenset()
    assert health.active_xids == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_that_counts_nothing_asks_nothing(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb")
    backend, health = watched(node, kind, XidPolicy(none=True))
    node.node.inject_fault("xid", gpu=0, code=79)
    assert health.poll(backend.read()) == frozenset()
    assert "EventSetCreate" not in [c["call"] for c in node.node.calls()]


def test_the_event_set_is_let_go_before_a_mode_change_and_a_suspension(machine: Start) -> None:
    node = machine("a100-sxm4-40gb")
    backend, health = watched(node, "shim")
    pci = backend.read().gpus[0].pci
    backend.set_mode(pci, True)
    health.poll(backend.read())
    with backend.suspend():
        node.node.reset(0)
    node.node.inject_fault("xid", gpu=0, code=48)
    assert health.poll(backend.read()) == frozenset(), "without a session, events are lost"
    node.node.inject_fault("xid", gpu=0, code=48)
    assert health.poll(backend.read()) == {backend.read().gpus[0].uuid}
    backend.close()
    messages = [c["call"] for c in node.node.calls() if "EventSet" in c["call"] or "SetMigMode" in c["call"]]
    messages = [c for c in messages if c != "EventSetWait"]
    assert messages == [
        *("EventSetCreate", "EventSetFree", "DeviceSetMigMode"),
        *("EventSetCreate", "EventSetFree", "EventSetCreate", "EventSetFree"),
    ]
    calls = [c["call"] for c in node.node.calls()]
    assert calls.index("Shutdown") > len(calls) - calls[::-1].index("DeviceSetMigMode")
    assert calls[calls.index("Shutdown") - 1] == "EventSetFree"


def test_no_client_watches_while_a_mode_is_changed(machine: Start) -> None:
    node = machine("a100-sxm4-40gb")
    backend, health = watched(node, "shim")
    assert isinstance(backend, NvmlBackend)
    inventory = backend.read()
    with backend.session.quiet():
        health.poll(inventory)
        calls = [c["call"] for c in node.node.calls()]
        assert calls.count("EventSetCreate") == calls.count("EventSetFree") == 1
    health.poll(inventory)
    assert [c["call"] for c in node.node.calls()].count("EventSetCreate") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_gpu_that_falls_off_the_bus_hides_no_other(machine: Start, kind: str) -> None:
    node = machine("a100-sxm4-40gb*2")
    backend, health = watched(node, kind)
    inventory = backend.read()
    node.node.inject_fault("lost", gpu=0)
    assert health.poll(backend.read()) == {inventory.gpus[0].uuid}, "XID 79"
    node.node.inject_fault("xid", gpu=1, code=48)
    assert health.poll(inventory) == {g.uuid for g in inventory.gpus}


def test_a_gpu_that_reports_nothing_is_named(machine: Start) -> None:
    node = machine("a100-sxm4-40gb*2")
    node.node.inject_fault("fail", call="DeviceGetSupportedEventTypes", code=3, gpu=0, calls=1)
    backend, health = watched(node, "shim")
    gpus = backend.read().gpus
    assert health.unwatched == (gpus[0].pci,)
    node.node.inject_fault("xid", gpu=1, code=48)
    assert health.poll(backend.read()) == {gpus[1].uuid}


def test_an_event_set_that_fails_is_made_again(machine: Start) -> None:
    node = machine("a100-sxm4-40gb")
    backend, health = watched(node, "shim")
    assert isinstance(backend, NvmlBackend)
    nv, true = backend.session.nv, backend.session.nv.nvmlEventSetWait_v2

    def lost(*_: object) -> None:
        raise nv.NVMLError(nv.NVML_ERROR_GPU_IS_LOST)

    nv.nvmlEventSetWait_v2 = lost
    assert health.poll(backend.read()) == frozenset()
    nv.nvmlEventSetWait_v2 = true
    health.poll(backend.read())
    node.node.inject_fault("xid", gpu=0, code=48)
    assert len(health.poll(backend.read())) == 1
