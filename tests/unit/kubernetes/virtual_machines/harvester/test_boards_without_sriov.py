"""Turing and Volta boards, whose vGPUs are mdevs of the GPU itself, in numbered slots instead of virtual functions."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.kubernetes.virtual_machines.harvester.device_offer import object_names, offer
from aliquot.kubernetes.virtual_machines.harvester.gpu_intents import driver_needed
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One, message, ready

PCI = "0000:08:00.0"
NAME = "n-000008000"
EIGHT_Q = 233
"""The id of GRID T4-8Q."""
FOREIGN = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def t4(tmp_path: Path) -> One:
    return One("tesla-t4:mdev", tmp_path, "n", PCI).settle()


@pytest.fixture
def shared(t4: One) -> One:
    """Build a T4 whose SRIOVGPUDevice is enabled."""
    return t4.kubectl("SRIOVGPUDevice", NAME, enabled=True)


def slot(number: int) -> str:
    return f"{NAME}-{number:02}"


def enable(one: One, number: int, kind: str) -> One:
    return one.kubectl("VGPUDevice", slot(number), enabled=True, vGPUTypeName=kind)


def vgpu(one: One, number: int) -> JSON:
    return one.store.get("VGPUDevice", slot(number))


def mdevs(one: One) -> dict[str, str]:
    (gpu,) = one.node.whole.read().gpus
    return {each.uuid: each.type for each in gpu.vgpus}


def test_the_board_has_an_object_and_no_devices_until_it_is_enabled(t4: One) -> None:
    assert t4.device(PCI)["spec"]["enabled"] is False
    assert "vfAddresses" not in t4.device(PCI)["status"]
    assert t4.store.of("VGPUDevice") == {}


def test_the_node_needs_the_driver_once_the_board_is_to_be_shared(t4: One) -> None:
    # A T4 that is not shared keeps the driver that it has.
    assert not driver_needed(t4.view(), t4.store.typed())
    t4.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    t4.blind = "not there yet: that is why it is needed"
    assert driver_needed(t4.view(), t4.store.typed())


def test_enabled_it_has_one_device_for_each_vgpu_of_the_smallest_type(shared: One) -> None:
    found = shared.store.of("VGPUDevice")
    assert list(found) == [slot(n) for n in range(16)]
    assert ready(shared.device(PCI)) == ("True", "Enabled")
    assert "16 vGPUs" in message(shared.device(PCI))
    assert shared.device(PCI)["status"]["vGPUDevices"] == list(found)
    first = vgpu(shared, 0)
    assert first["spec"]["address"] == f"{PCI}/00"
    assert first["spec"]["parentGPUDeviceAddress"] == PCI
    assert first["status"]["availableTypes"]["GRID T4-4Q"] == "nvidia-232"


def test_vgpus_are_created_with_the_uuid_of_their_slot_and_destroyed(shared: One) -> None:
    enable(shared, 3, "GRID T4-4Q")
    enable(shared, 5, "GRID T4-4Q")
    (gpu,) = shared.node.whole.read().gpus
    assert mdevs(shared) == {stable_uuid(gpu, 3): "GRID T4-4Q", stable_uuid(gpu, 5): "GRID T4-4Q"}
    assert vgpu(shared, 3)["status"]["uuid"] == stable_uuid(gpu, 3)
    assert vgpu(shared, 3)["status"]["vGPUStatus"] == "vGPUConfigured"
    assert set(vgpu(shared, 0)["status"]["availableTypes"]) == {"GRID T4-4Q", "GRID T4-4A", "GRID T4-4C"}
    shared.kubectl("VGPUDevice", slot(3), enabled=False)
    assert mdevs(shared) == {stable_uuid(gpu, 5): "GRID T4-4Q"}


def test_the_fifth_4q_is_refused_alone(shared: One) -> None:
    for number in range(5):
        shared.store.patch("VGPUDevice", slot(number), {"spec": {"enabled": True, "vGPUTypeName": "GRID T4-4Q"}})
    shared.settle()
    assert len(mdevs(shared)) == 4
    assert [ready(vgpu(shared, n))[0] for n in range(5)] == ["True"] * 4 + ["False"]


def test_a_reboot_brings_the_same_vgpus_back(shared: One) -> None:
    enable(shared, 2, "GRID T4-8Q")
    before = mdevs(shared)
    shared.reboot().settle()
    assert mdevs(shared) == before
    assert len(before) == 1


def test_the_node_offers_each_by_its_uuid_and_a_vm_learns_the_name_of_its_object(shared: One) -> None:
    enable(shared, 2, "GRID T4-8Q")
    view, objects = shared.view(), shared.store.typed()
    (uuid,) = mdevs(shared)
    made = offer(view, objects, {uuid: 7})
    (resource,) = made.resources
    assert resource.name == "nvidia.com/GRID_T4-8Q"
    assert [(device.id, device.paths, device.healthy) for device in resource.devices] == [
        (uuid, ("/dev/vfio/7",), True)
    ]
    assert object_names(view, objects)[uuid] == slot(2)
    shared.blind = "no driver"
    (resource,) = offer(shared.view(), objects, {}).resources
    assert [(device.id, device.healthy) for device in resource.devices] == [(uuid, False)]


def test_a_foreign_mdev_is_adopted_with_a_new_object_and_left_alone_beside_an_old_one(tmp_path: Path) -> None:
    t4 = One("tesla-t4:mdev", tmp_path, "n", PCI)
    t4.make_by_hand(PCI, EIGHT_Q, FOREIGN)
    t4.settle()
    assert t4.device(PCI)["spec"]["enabled"] is True
    owner = next(body for body in t4.store.of("VGPUDevice").values() if body["spec"]["enabled"])
    assert owner["status"]["uuid"] == FOREIGN
    other = "11111111-2222-4333-8444-666666666666"
    t4.make_by_hand(PCI, EIGHT_Q, other)
    t4.settle()
    assert set(mdevs(t4)) == {FOREIGN, other}
    untracked = [body for body in t4.store.of("VGPUDevice").values() if ready(body) == ("False", "Untracked")]
    assert len(untracked) == 1
    assert untracked[0]["metadata"]["name"] != owner["metadata"]["name"]


def test_the_board_is_taken_back_once_no_device_is_enabled(shared: One) -> None:
    enable(shared, 0, "GRID T4-4Q")
    shared.kubectl("SRIOVGPUDevice", NAME, enabled=False)
    assert ready(shared.device(PCI)) == ("False", "VgpuEnabled")
    assert len(mdevs(shared)) == 1
    shared.kubectl("VGPUDevice", slot(0), enabled=False)
    shared.settle()
    assert mdevs(shared) == {}
    assert ready(shared.device(PCI)) == ("True", "Disabled")
    assert shared.store.of("VGPUDevice") == {}


def test_passthrough_and_sharing_exclude_each_other(shared: One) -> None:
    shared.store.create(
        "PCIDeviceClaim",
        {
            "apiVersion": "devices.harvesterhci.io/v1beta1",
            "kind": "PCIDeviceClaim",
            "metadata": {"name": NAME},
            "spec": {"address": PCI, "nodeName": "n", "userName": "admin"},
        },
    )
    shared.settle()
    assert ready(shared.store.get("PCIDeviceClaim", NAME)) == ("False", "SriovEnabled")
    shared.kubectl("SRIOVGPUDevice", NAME, enabled=False)
    shared.settle()
    assert ready(shared.store.get("PCIDeviceClaim", NAME))[0] == "True"


def test_without_the_vgpu_driver_the_condition_names_it(tmp_path: Path) -> None:
    one = One("tesla-t4", tmp_path, "n", PCI).settle()
    one.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    assert ready(one.device(PCI)) == ("False", "NoVgpuDriver")


def test_a_foreign_mdev_does_not_take_the_place_of_one_that_a_reboot_destroyed(shared: One) -> None:
    enable(shared, 15, "GRID T4-8Q")
    before = mdevs(shared)
    shared.reboot()
    shared.make_by_hand(PCI, EIGHT_Q, FOREIGN)
    shared.settle()
    assert set(mdevs(shared)) == {*before, FOREIGN}
    assert vgpu(shared, 15)["status"]["uuid"] == next(iter(before))
