"""SRIOVGPUDevices and the functions of the bus: on, off, and blockers."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.kubernetes.virtual_machines.harvester.gpu_intents import digest, driver_needed
from aliquot.kubernetes.virtual_machines.harvester.node_view import Result
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready

PCI, NAME = "0000:08:00.0", "n-000008000"
FIRST = "0000:08:00.4"


@pytest.fixture
def a2(tmp_path: Path) -> One:
    return One("a2:mdev", tmp_path, "n", PCI).settle()


def on(one: One) -> One:
    return one.kubectl("SRIOVGPUDevice", NAME, enabled=True)


def off(one: One) -> One:
    return one.kubectl("SRIOVGPUDevice", NAME, enabled=False)


def test_on_and_off_again(a2: One) -> None:
    on(a2)
    assert len(a2.store.of("VGPUDevice")) == 16
    assert ready(a2.device(PCI)) == ("True", "Enabled")
    off(a2)
    assert a2.store.of("VGPUDevice") == {}
    assert ready(a2.device(PCI)) == ("True", "Disabled")
    assert "vfAddresses" not in a2.device(PCI)["status"]
    assert set(a2.store.of("PCIDevice")) == {NAME}


def test_an_unrequested_gpu_is_not_touched(a2: One) -> None:
    assert a2.intents() == ()


def test_a_new_object_takes_its_request_from_the_hardware(a2: One) -> None:
    a2.store.objects.clear()
    a2.functions_by_hand(True)
    a2.settle()
    assert a2.device(PCI)["spec"]["enabled"] is True
    assert len(a2.store.of("VGPUDevice")) == 16


def test_a_node_with_an_sriov_gpu_needs_the_driver(a2: One) -> None:
    assert driver_needed(a2.view(), a2.store.typed())
    a2.blind = "not there yet: that is why it is needed"
    assert driver_needed(a2.view(), a2.store.typed())


def test_off_is_refused_while_a_vgpudevice_is_enabled(a2: One) -> None:
    # By the rule of the seed, any of them counts, attached or not. The message names them.
    on(a2)
    a2.kubectl("VGPUDevice", a2.name_of(FIRST), enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    off(a2)
    assert ready(a2.device(PCI)) == ("False", "VgpuEnabled")
    assert "n-000008004" in message(a2.device(PCI))
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    a2.kubectl("VGPUDevice", a2.name_of(FIRST), enabled=False)
    assert a2.live() == {}
    assert ready(a2.device(PCI)) == ("True", "Disabled")


def test_off_is_refused_while_a_machine_has_a_vgpu(a2: One) -> None:
    on(a2)
    a2.kubectl("VGPUDevice", a2.name_of(FIRST), enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    a2.start_vm(a2.vgpu(FIRST)["status"]["uuid"])
    a2.store.patch("VGPUDevice", a2.name_of(FIRST), {"spec": {"enabled": False}})
    off(a2)
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    assert ready(a2.device(PCI)) == ("False", "Held")
    a2.stop_vm()
    a2.settle()
    assert ready(a2.device(PCI)) == ("True", "Disabled")


def test_off_is_refused_while_something_made_by_hand_lives(a2: One) -> None:
    on(a2)
    a2.make_by_hand(FIRST, 746, "11111111-2222-4333-8444-555555555555")
    off(a2)
    assert ready(a2.device(PCI)) == ("False", "Untracked")
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    a2.mark("VGPUDevice", a2.name_of(FIRST), "aliquot.dev/untracked", "delete")
    assert ready(a2.device(PCI)) == ("True", "Disabled")


def test_no_driver_is_unknown_and_says_why(a2: One) -> None:
    a2.blind = "pod nvidia-driver-daemonset-x is not ready | next: kubectl logs -n harvester-system x"
    a2.store.patch("SRIOVGPUDevice", NAME, {"spec": {"enabled": True}})
    a2.settle()
    assert ready(a2.device(PCI)) == ("Unknown", "DriverPodNotReady")
    assert message(a2.device(PCI)) == a2.blind
    assert a2.store.of("VGPUDevice") == {}
    a2.blind = ""
    a2.settle()
    assert ready(a2.device(PCI)) == ("True", "Enabled")


def test_a_gpu_that_is_off_needs_no_driver_to_be_as_requested(a2: One) -> None:
    a2.blind = "none"
    a2.settle()
    assert ready(a2.device(PCI)) == ("True", "Disabled")


def test_objects_wait_for_functions_that_a_reboot_took(a2: One) -> None:
    on(a2)
    a2.reboot()
    a2.blind = "not yet"
    a2.settle()
    assert len(a2.store.of("VGPUDevice")) == 16
    off(a2)
    assert a2.store.of("VGPUDevice") == {}


def test_the_request_outlasts_a_gpu_that_is_gone_for_a_while(a2: One) -> None:
    on(a2)
    a2.kubectl("VGPUDevice", a2.name_of(FIRST), enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    gpu = a2.node.backend.memory.node.gpus.pop()
    a2.node.backend.memory.node.files_changed()
    a2.settle()
    assert a2.store.of("PCIDevice") == {}
    assert ready(a2.device(PCI)) == ("False", "GpuMissing")
    assert ready(a2.vgpu(FIRST)) == ("False", "GpuMissing")
    assert a2.vgpu(FIRST)["spec"]["vGPUTypeName"] == "NVIDIA A2-4Q"
    off(a2)
    assert a2.store.objects == {}
    del gpu


def test_a_failure_is_reported_on_what_it_is_about_and_no_longer_than_the_request(a2: One) -> None:
    a2.store.patch("SRIOVGPUDevice", NAME, {"spec": {"enabled": True}})
    (intent,) = a2.intents()
    a2.results[PCI] = Result(digest(intent), False, "HardwareRefused", "unbindLock is taken | next: lsof /dev/nvidia0")
    a2.publish()
    assert ready(a2.device(PCI)) == ("False", "HardwareRefused")
    assert message(a2.device(PCI)) == "unbindLock is taken | next: lsof /dev/nvidia0"
    a2.results[PCI] = Result("another wish", False, "Held", "old")
    a2.publish()
    assert ready(a2.device(PCI)) == ("False", "Pending")


def test_two_gpus_one_bad_request(tmp_path: Path) -> None:
    # An error on one GPU does not affect the other.
    one = One("a2:mdev*2", tmp_path, "n").settle()
    first, second = sorted(one.store.of("SRIOVGPUDevice"))
    one.kubectl("SRIOVGPUDevice", first, enabled=True)
    one.kubectl("SRIOVGPUDevice", second, enabled=True)
    assert [i.pci for i in one.intents()] == sorted(i.pci for i in one.intents())
    bad = one.store.get("SRIOVGPUDevice", first)["status"]["vGPUDevices"][0]
    good = one.store.get("SRIOVGPUDevice", second)["status"]["vGPUDevices"][0]
    one.store.patch("VGPUDevice", bad, {"spec": {"enabled": True, "vGPUTypeName": "bogus"}})
    one.kubectl("VGPUDevice", good, enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    assert list(one.live().values()) == ["NVIDIA A2-4Q"]


def test_a_node_name_too_long_for_a_label_still_gets_its_objects(tmp_path: Path) -> None:
    # A label's value has at most 63 characters, an object's name 253.
    name = "gpu-" + "x" * 52 + ".example.org"
    one = One("a2:mdev", tmp_path, name, PCI).settle()
    one.kubectl("SRIOVGPUDevice", one.name_of(PCI), enabled=True)
    for body in one.store.objects.values():
        assert all(len(value) <= 63 for value in body["metadata"].get("labels", {}).values())
    assert len(one.store.of("VGPUDevice")) == 16


def test_other_nodes_objects_are_not_ours(a2: One) -> None:
    foreign = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "SRIOVGPUDevice",
        "metadata": {"name": "other-000099000"},
        "spec": {"address": "0000:99:00.0", "nodeName": "other", "enabled": False},
    }
    a2.store.create("SRIOVGPUDevice", foreign)
    a2.settle()
    assert "other-000099000" in a2.store.of("SRIOVGPUDevice")


def test_network_cards_that_the_original_lists_are_left_to_it(a2: One) -> None:
    status = {"address": "0000:03:00.0", "vendorId": "8086", "deviceId": "10fb", "nodeName": "n"}
    for name, vendor in (("n-000003000", "8086"), ("n-000077000", "10de")):
        a2.store.create("PCIDevice", {"metadata": {"name": name, "labels": {"nodename": "n"}}, "spec": {}})
        a2.store.objects["PCIDevice", name]["status"] = status | {"vendorId": vendor}
    a2.settle()
    assert set(a2.store.of("PCIDevice")) == {NAME, "n-000003000"}


def test_the_label_by_which_an_object_is_watched_comes_back(a2: One) -> None:
    del a2.device(PCI)["metadata"]["labels"]
    a2.settle()
    assert a2.device(PCI)["metadata"]["labels"] == {"nodename": "n"}
