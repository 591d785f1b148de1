"""The backend without C. The contract suite covers what both backends have in common."""

from __future__ import annotations

import pytest

from aliquot.errors import GpuLostError, HardwareError, InUseError, UsageError
from aliquot.node.simulated.backend import SimBackend
from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient


@pytest.fixture
def node(state_dir: str) -> SimClient:
    return SimClient(state_dir, control.start(state_dir, "a100-sxm4-40gb*2,t4"))


def test_read(node: SimClient) -> None:
    node.set_mode(0, True)
    gi = node.create(0, "3g.20gb")
    pid = node.hold(0, gi)
    backend = SimBackend(node)
    inventory = backend.read()
    assert [g.family for g in inventory.gpus] == ["a100-40gb", "a100-40gb", None]
    assert [g.mig.capable for g in inventory.gpus] == [True, True, False]
    instance = inventory.gpus[0].instances[0]
    assert (instance.id, instance.profile, instance.placement, instance.held) == (2, "3g.20gb", "4:4", True)
    assert instance.compute_instances[0].holders[0].id == str(pid)
    assert instance.capability_minor == 3 + 135 * inventory.gpus[0].minor + 9 * gi
    assert inventory.gpus[0].holders == ()
    backend.close()


def test_refusals_are_errors_of_ours(node: SimClient) -> None:
    backend = SimBackend(node)
    pci = backend.read().gpus[0].pci
    with pytest.raises(HardwareError) as caught:
        backend.create_gpu_instance(pci, 9, 0, 4)
    assert caught.value.nvml_code == 3
    backend.set_mode(pci, True)
    gi = backend.create_gpu_instance(pci, 9, 0, 4)
    backend.create_compute_instance(pci, gi, 2, 0, 3)
    with pytest.raises(InUseError):
        backend.destroy_gpu_instance(pci, gi)
    with pytest.raises(HardwareError) as caught:
        backend.destroy_compute_instance(pci, gi, 5)
    assert caught.value.nvml_code == 6
    node.inject_fault("lost", gpu=pci)
    with pytest.raises(GpuLostError):
        backend.read_gpu(pci)
    assert [g.lost for g in backend.read().gpus] == [True, False, False]
    backend.close()


def test_a_suspended_session_lets_a_reset_through(node: SimClient) -> None:
    backend = SimBackend(node)
    with pytest.raises(InUseError):
        node.reset(0)
    with backend.suspend():
        node.reset(0)
        assert node.show()["sessions"] == []
    assert backend.read().gpus[0].mig.current == "disabled"
    backend.close()
    assert node.show()["sessions"] == []


def test_acting_by_hand(node: SimClient) -> None:
    node.set_mode(0, True)
    gi = node.create(0, 19, start=6)
    assert gi == 13
    assert node.release(0, gi) == 0
    node.hold(0, "13/0", pid=77, name="a|b")
    assert node.show()["gpus"][0]["processes"] == [
        {"pid": 77, "name": "a b", "instance": 13, "compute_instance": 0, "memory_mib": 256, "busy": 0.5}
    ]
    with pytest.raises(InUseError):
        node.destroy(0, gi)
    assert node.terminate(77) == 1
    node.destroy(0, "13/0")
    node.destroy(0, gi)
    assert node.show()["gpus"][0]["instances"] == []
    with pytest.raises(UsageError):
        node.create(0, "9g.5gb")
    with pytest.raises(UsageError):
        node.hold(9)


def test_the_machine_can_be_rebooted(node: SimClient) -> None:
    backend = SimBackend(node)
    pci = backend.read().gpus[0].pci
    backend.set_mode(pci, True)
    backend.create_gpu_instance(pci, 9, 0, 4)
    boot = node.show()["boot_id"]
    backend.close()
    node.reboot()
    shown = node.show()
    assert shown["boot_id"] != boot
    assert shown["gpus"][0]["mig"]["current"] == "enabled"
    assert shown["gpus"][0]["instances"] == []
