"""PCIDeviceClaims on whole GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready

PCI, NAME = "0000:08:00.0", "n-000008000"
OVERRIDE = "pcidevice.harvesterhci.io/override-resource-name"
FINALIZER = "wrangler.cattle.io/PCIDeviceClaimOnRemove"


@pytest.fixture
def a2(tmp_path: Path) -> One:
    return One("a2:mdev", tmp_path, "n", PCI).settle()


def claim(one: One, address: str = PCI, **spec: object) -> One:
    body = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "PCIDeviceClaim",
        "metadata": {"name": one.name_of(address)},
        "spec": {"address": address, "nodeName": one.name, "userName": "admin", **spec},
    }
    one.store.create("PCIDeviceClaim", body)
    return one.settle()


def release(one: One, address: str = PCI) -> One:
    one.store.delete("PCIDeviceClaim", one.name_of(address))
    return one.settle()


def driver(one: One, address: str = PCI) -> str:
    return next(f.driver for f in one.view().functions if f.address == address)


def test_a_gpu_is_passed_through_whole_and_taken_back(a2: One) -> None:
    claim(a2)
    assert driver(a2) == "vfio-pci"
    body = a2.store.get("PCIDeviceClaim", NAME)
    assert body["status"]["passthroughEnabled"] is True
    assert body["status"]["kernelDriverToUnbind"] == "nvidia"
    assert body["metadata"]["finalizers"] == [FINALIZER]
    assert ready(body) == ("True", "PassedThrough")
    device = a2.store.get("PCIDevice", NAME)
    assert device["status"]["kernelDriverInUse"] == "vfio-pci"
    assert device["metadata"]["annotations"]["harvesterhci.io/pcideviceDriver"] == "nvidia"
    release(a2)
    assert driver(a2) == "nvidia"
    assert a2.store.of("PCIDeviceClaim") == {}


def test_a_machine_keeps_the_gpu_that_it_has(a2: One) -> None:
    claim(a2)
    a2.start_vm(PCI)
    release(a2)
    assert driver(a2) == "vfio-pci"
    assert a2.store.get("PCIDeviceClaim", NAME)["metadata"]["finalizers"] == [FINALIZER]
    a2.stop_vm()
    a2.settle()
    assert driver(a2) == "nvidia"
    assert a2.store.of("PCIDeviceClaim") == {}


def test_a_claim_names_the_pool_that_has_the_gpu(a2: One) -> None:
    a2.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    (first, *_) = a2.store.of("VGPUDevice")
    a2.store.patch("VGPUDevice", first, {"metadata": {"labels": {"aliquot.dev/pool": "desks"}}})
    a2.kubectl("VGPUDevice", first, enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    claim(a2)
    body = a2.store.get("PCIDeviceClaim", NAME)
    assert ready(body) == ("False", "SriovEnabled")
    assert "VGPUPool desks requests vGPUs of it" in message(body)
    assert message(body).endswith("| next: kubectl edit vgpupool desks")


def test_a_gpu_with_virtual_functions_is_not_passed_through(a2: One) -> None:
    a2.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    claim(a2)
    body = a2.store.get("PCIDeviceClaim", NAME)
    assert ready(body) == ("False", "SriovEnabled")
    assert f"kubectl patch sriovgpudevice {NAME}" in message(body)
    assert driver(a2) == "nvidia"
    assert len(a2.store.of("VGPUDevice")) == 16
    a2.kubectl("SRIOVGPUDevice", NAME, enabled=False)
    assert driver(a2) == "vfio-pci"
    assert ready(a2.store.get("PCIDeviceClaim", NAME)) == ("True", "PassedThrough")


def test_a_gpu_that_is_passed_through_gets_no_virtual_functions(a2: One) -> None:
    claim(a2)
    a2.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    assert ready(a2.device(PCI)) == ("False", "Claimed")
    assert f"kubectl delete pcideviceclaim {NAME}" in message(a2.device(PCI))
    assert driver(a2) == "vfio-pci"
    release(a2)
    assert ready(a2.device(PCI)) == ("True", "Enabled")


def test_a_claim_waits_for_a_vgpu_in_use(a2: One) -> None:
    a2.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    address = "0000:08:00.4"
    a2.kubectl("VGPUDevice", a2.name_of(address), enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    a2.start_vm(a2.vgpu(address)["status"]["uuid"])
    a2.store.patch("VGPUDevice", a2.name_of(address), {"spec": {"enabled": False}})
    a2.store.patch("SRIOVGPUDevice", NAME, {"spec": {"enabled": False}})
    claim(a2)
    assert ready(a2.store.get("PCIDeviceClaim", NAME)) == ("False", "Held")
    assert a2.live() == {address: "NVIDIA A2-4Q"}


def test_a_claimed_gpu_without_an_object_gets_none(tmp_path: Path) -> None:
    # As in the original: it is created once the claim is gone.
    one = One("a2:mdev", tmp_path, "n", PCI)
    claim(one)
    assert one.store.of("SRIOVGPUDevice") == {}
    release(one)
    assert list(one.store.of("SRIOVGPUDevice")) == [NAME]


def test_passthrough_returns_after_a_reboot(a2: One) -> None:
    claim(a2)
    a2.reboot()
    assert driver(a2) == "nvidia"
    a2.settle()
    assert driver(a2) == "vfio-pci"
    assert a2.store.get("PCIDeviceClaim", NAME)["status"]["kernelDriverToUnbind"] == "nvidia"


def test_a_gpu_without_iommu_says_so(tmp_path: Path) -> None:
    one = One("t4:noiommu", tmp_path, "n", PCI).settle()
    claim(one)
    assert ready(one.store.get("PCIDeviceClaim", NAME))[0] == "False"
    assert "IOMMU" in message(one.store.get("PCIDeviceClaim", NAME))


def test_an_unrelated_device_in_the_group_is_named(tmp_path: Path) -> None:
    one = One("a2:mdev:grouped", tmp_path, "n", PCI).settle()
    claim(one)
    body = one.store.get("PCIDeviceClaim", NAME)
    assert ready(body)[0] == "False"
    assert driver(one) == "nvidia"
    unrelated = next(f for f in one.view().functions if f.vendor_id != "10de")
    assert unrelated.address in message(body)
    claim(one, unrelated.address)
    assert ready(one.store.get("PCIDeviceClaim", one.name_of(unrelated.address))) == ("False", "NotAGpu")


def test_a_virtual_function_is_claimed_through_its_vgpudevice(a2: One) -> None:
    a2.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    claim(a2, "0000:08:00.4")
    body = a2.store.get("PCIDeviceClaim", "n-000008004")
    assert ready(body) == ("False", "VirtualFunction")
    release(a2, "0000:08:00.4")
    assert a2.store.of("PCIDeviceClaim") == {}


def test_a_network_cards_claim_says_that_it_is_not_served_and_can_be_deleted(a2: One) -> None:
    # This includes a claim that pcidevices left, with its finalizer: its driver fields stay.
    claim(a2, "0000:03:00.0")
    body = a2.store.get("PCIDeviceClaim", "n-000003000")
    assert ready(body) == ("False", "NotServed")
    assert "no NVIDIA device at 0000:03:00.0" in message(body)
    assert message(body).endswith("| next: kubectl delete pcideviceclaim n-000003000")
    assert "finalizers" not in body["metadata"]
    left = {"status": {"kernelDriverToUnbind": "ixgbe", "passthroughEnabled": True}}
    a2.store.patch("PCIDeviceClaim", "n-000003000", {"metadata": {"finalizers": [FINALIZER]}})
    a2.store.objects["PCIDeviceClaim", "n-000003000"]["status"] |= left["status"]
    a2.settle()
    body = a2.store.get("PCIDeviceClaim", "n-000003000")
    assert ready(body) == ("False", "NotServed")
    assert {key: body["status"][key] for key in left["status"]} == left["status"]
    release(a2, "0000:03:00.0")
    assert a2.store.of("PCIDeviceClaim") == {}


def test_without_resource_pooling_each_device_is_a_resource_of_its_own(a2: One) -> None:
    claim(a2, disableResourcePooling=True)
    device = a2.store.get("PCIDevice", NAME)
    assert device["status"]["resourceName"] == f"nvidia.com/{NAME}"
    assert device["metadata"]["annotations"][OVERRIDE] == f"nvidia.com/{NAME}", "pcidevices reads it after a move"
    before = len(a2.store.written)
    a2.settle()
    assert len(a2.store.written) == before
    release(a2)
    device = a2.store.get("PCIDevice", NAME)
    assert device["status"]["resourceName"] == "nvidia.com/GA107GL_A2___A16"
    assert OVERRIDE not in device["metadata"]["annotations"]


def test_no_driver_says_why_the_gpu_is_not_passed_through(a2: One) -> None:
    a2.blind = "no pod of the driver"
    claim(a2)
    assert ready(a2.store.get("PCIDeviceClaim", NAME)) == ("Unknown", "DriverPodNotReady")
    a2.blind = ""
    a2.settle()
    assert ready(a2.store.get("PCIDeviceClaim", NAME)) == ("True", "PassedThrough")


def test_a_claim_that_only_reserves_leaves_the_driver(a2: One) -> None:
    body = {
        "metadata": {"name": NAME, "annotations": {"pcidevices.harvesterhci.io/skip-vfio-binding": "true"}},
        "spec": {"address": PCI, "nodeName": "n", "userName": "admin"},
    }
    a2.store.create("PCIDeviceClaim", body)
    a2.settle()
    assert driver(a2) == "nvidia"
    assert a2.intents() == ()
