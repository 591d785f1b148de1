"""The functions of all vendors on a node whose agent serves all devices, as pcidevices serves them."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from aliquot.kubernetes.kinds.harvester_names import pci_resource
from aliquot.kubernetes.virtual_machines.harvester.device_offer import offer
from aliquot.kubernetes.virtual_machines.harvester.other_functions import FunctionBinding, bindings, other_functions
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready
from unit.kubernetes.virtual_machines.harvester.test_claim_objects import FINALIZER, claim, driver, release

GPU, NIC, UPLINK, HBA, NVME = "0000:08:00.0", "0000:04:00.1", "0000:04:00.0", "0000:03:00.0", "0000:05:00.0"
CARD, VF, USB = "0000:06:00.0", "0000:06:00.2", "0000:02:00.0"
CARD_RESOURCE = "intel.com/82599ES_10GIGABIT_SFI_SFP_NETWORK_CONNECTION"


@pytest.fixture
def one(tmp_path: Path) -> One:
    return One("a2:mdev:host", tmp_path, "n", GPU, all_devices=True).settle()


def listed(one: One) -> list[str]:
    return [body["status"]["address"] for body in one.store.of("PCIDevice").values()]


def resources(one: One) -> dict[str, list[str]]:
    found = offer(one.view(), one.store.typed(), {})
    return {each.name: [d.id for d in each.devices if d.healthy] for each in found.resources}


def test_every_function_is_listed_but_bridges_and_what_the_networks_need(one: One) -> None:
    # The card with virtual functions and the uplink of the management network are hidden, as with pcidevices.
    assert listed(one) == [USB, HBA, NIC, NVME, VF, GPU]


def test_without_the_option_only_nvidias_functions_are_listed(tmp_path: Path) -> None:
    assert listed(One("a2:mdev:host", tmp_path, "n", GPU).settle()) == [GPU]


def test_a_gpu_its_board_and_its_virtual_functions_are_decided_elsewhere(one: One) -> None:
    one.kubectl("SRIOVGPUDevice", one.name_of(GPU), enabled=True)
    view = one.view()
    audio = replace(next(f for f in view.functions if f.gpu), address="0000:08:00.1", gpu=False, class_id="0403")
    switch = replace(audio, address="0000:0a:00.0", class_id="0680")
    found = other_functions(replace(view, functions=(*view.functions, audio, switch)))
    assert list(found) == [USB, HBA, UPLINK, NIC, NVME, CARD, VF, switch.address]


def test_an_object_has_the_fields_of_pcidevices(one: One) -> None:
    body = one.store.get("PCIDevice", one.name_of(NIC))
    status = {k: v for k, v in body["status"].items() if k not in ("conditions", "observedGeneration")}
    assert status == {
        "address": NIC,
        "vendorId": "8086",
        "deviceId": "10fb",
        "classId": "0200",
        "iommuGroup": "62",
        "nodeName": "n",
        "resourceName": CARD_RESOURCE,
        "description": "Ethernet controller: Intel Corporation 82599ES 10-Gigabit SFI/SFP+ Network Connection",
        "kernelDriverInUse": "ixgbe",
    }
    assert body["metadata"]["labels"] == {"nodename": "n"}
    assert body["metadata"]["annotations"] == {"harvesterhci.io/pcideviceDriver": "ixgbe"}


def test_a_virtual_function_names_the_network_device_of_its_card(one: One) -> None:
    label = "harvesterhci.io/parent-sriov-network-device"
    assert one.store.get("PCIDevice", one.name_of(VF))["metadata"]["labels"][label] == "n-ens6f0np0"


@pytest.mark.parametrize("address", [NIC, NVME, VF, USB])
def test_a_function_is_passed_through_and_taken_back(one: One, address: str) -> None:
    first = driver(one, address)
    claim(one, address)
    body = one.store.get("PCIDeviceClaim", one.name_of(address))
    assert (driver(one, address), ready(body)) == ("vfio-pci", ("True", "PassedThrough"))
    assert body["status"]["passthroughEnabled"] is True
    assert body["status"]["kernelDriverToUnbind"] == first
    assert body["metadata"]["finalizers"] == [FINALIZER]
    resource = one.store.get("PCIDevice", one.name_of(address))["status"]["resourceName"]
    assert resources(one) == {resource: [address]}
    release(one, address)
    assert driver(one, address) == first
    assert (one.store.of("PCIDeviceClaim"), resources(one)) == ({}, {})
    assert driver(one, GPU) == "nvidia"


@pytest.mark.parametrize(
    ("address", "user"),
    [(HBA, "sda2 is mounted on /"), (UPLINK, "eno49 is part of mgmt-bo"), (CARD, "it has 1 virtual functions")],
    ids=["root", "uplink", "functions"],
)
def test_what_the_host_needs_stays_and_the_claim_names_the_user(one: One, address: str, user: str) -> None:
    first = driver(one, address)
    claim(one, address)
    body = one.store.get("PCIDeviceClaim", one.name_of(address))
    assert ready(body) == ("False", "Held")
    assert user in message(body)
    assert (driver(one, address), resources(one)) == (first, {})
    release(one, address)
    assert one.store.of("PCIDeviceClaim") == {}


def test_a_claim_on_a_card_with_functions_names_the_command_that_removes_them(tmp_path: Path) -> None:
    one = One("a2:mdev:host", tmp_path, "n", GPU, all_devices=True, peripherals=True).settle()
    claim(one, CARD)
    step = """kubectl patch sriovnetworkdevice n-ens6f0np0 --type merge -p '{"spec":{"numVFs":0}}'"""
    assert message(one.store.get("PCIDeviceClaim", one.name_of(CARD))).endswith(f" | next: {step}")


def test_the_card_with_the_nodes_address_stays(one: One) -> None:
    one.node.backend.memory.node.state.route = "eno50"
    one.node.backend.memory.node.files_changed()
    one.node_addresses = ("192.168.1.7",)
    claim(one, NIC)
    assert "eno50 has the node's address 192.168.1.7" in message(one.store.get("PCIDeviceClaim", one.name_of(NIC)))
    assert driver(one, NIC) == "ixgbe"


def test_a_machine_keeps_the_card_that_it_has(one: One) -> None:
    claim(one, NIC)
    one.start_vm(NIC)
    release(one, NIC)
    body = one.store.get("PCIDeviceClaim", one.name_of(NIC))
    assert (driver(one, NIC), ready(body)) == ("vfio-pci", ("False", "Held"))
    assert "guest" in message(body)
    assert resources(one) == {}, "a card that is taken back is not offered"
    one.stop_vm()
    one.settle()
    assert (driver(one, NIC), one.store.of("PCIDeviceClaim")) == ("ixgbe", {})


def test_passthrough_returns_after_a_reboot(one: One) -> None:
    claim(one, NIC)
    one.reboot()
    assert driver(one, NIC) == "ixgbe"
    one.settle()
    assert driver(one, NIC) == "vfio-pci"
    assert one.store.get("PCIDeviceClaim", one.name_of(NIC))["status"]["kernelDriverToUnbind"] == "ixgbe"
    assert resources(one) == {CARD_RESOURCE: [NIC]}


def test_a_vgpu_and_a_card_serve_one_machine(one: One) -> None:
    one.kubectl("SRIOVGPUDevice", one.name_of(GPU), enabled=True)
    function = "0000:08:00.4"
    one.kubectl("VGPUDevice", one.name_of(function), enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    claim(one, NIC)
    uuid = one.vgpu(function)["status"]["uuid"]
    assert resources(one) | {"nvidia.com/NVIDIA_A2-4Q": [uuid]} == {
        CARD_RESOURCE: [NIC],
        "nvidia.com/NVIDIA_A2-4Q": [uuid],
    }
    one.start_vm(uuid, NIC)
    release(one, NIC)
    assert (one.live(), driver(one, NIC)) == ({function: "NVIDIA A2-4Q"}, "vfio-pci")


def test_nothing_is_bound_before_its_claim_has_the_finalizer(one: One) -> None:
    # If that write fails and the claim is deleted, the function would stay bound.
    spec = {"address": NIC, "nodeName": "n", "userName": "admin"}
    one.store.create("PCIDeviceClaim", {"metadata": {"name": one.name_of(NIC)}, "spec": spec})
    assert list(bindings(one.view(), one.store.typed())) == []
    one.publish()
    assert list(bindings(one.view(), one.store.typed())) == [FunctionBinding(NIC, True)]


def test_a_card_in_the_group_of_a_gpu_is_claimed_first(tmp_path: Path) -> None:
    one = One("a2:mdev:grouped", tmp_path, "n", GPU, all_devices=True).settle()
    card = one.node.backend.memory.node.gpus[0].state.neighbour
    assert card is not None
    card.class_id = "118000"  # a network card without an interface may be in use by a pod
    one.node.backend.memory.node.files_changed()
    claim(one, GPU)
    assert driver(one, GPU) == "nvidia"
    claim(one, "0000:08:00.1")
    assert (driver(one, "0000:08:00.1"), driver(one, GPU)) == ("vfio-pci", "vfio-pci")


def test_a_group_that_is_claimed_in_part_names_the_rest(one: One) -> None:
    others = one.node.backend.memory.node.gpus[0].state.others
    first, second = (each for each in others if each.address in (NIC, NVME))
    second.group = first.group
    one.node.backend.memory.node.files_changed()
    claim(one.settle(), NIC)
    body = one.store.get("PCIDeviceClaim", one.name_of(NIC))
    assert ready(body) == ("False", "IommuGroup")
    assert f"{NVME} (nvme)" in message(body)
    assert resources(one)[CARD_RESOURCE] == []
    claim(one, NVME)
    assert ready(one.store.get("PCIDeviceClaim", one.name_of(NIC))) == ("True", "PassedThrough")
    assert resources(one)[CARD_RESOURCE] == [NIC]


def test_without_pooling_a_card_is_a_resource_of_its_own(one: One) -> None:
    claim(one, NIC, disableResourcePooling=True)
    name = one.name_of(NIC)
    body = one.store.get("PCIDevice", name)
    assert body["status"]["resourceName"] == f"intel.com/{name}"
    assert body["metadata"]["annotations"]["pcidevice.harvesterhci.io/override-resource-name"] == f"intel.com/{name}"
    assert resources(one) == {f"intel.com/{name}": [NIC]}
    release(one, NIC)
    body = one.store.get("PCIDevice", name)
    assert body["status"]["resourceName"] == CARD_RESOURCE
    assert "pcidevice.harvesterhci.io/override-resource-name" not in body["metadata"]["annotations"]


def test_an_overriding_resource_name_is_honoured_and_kept(one: One) -> None:
    name = one.name_of(NIC)
    one.mark("PCIDevice", name, "pcidevice.harvesterhci.io/override-resource-name", "example.com/fast")
    claim(one, NIC)
    assert one.store.get("PCIDevice", name)["status"]["resourceName"] == "example.com/fast"
    assert resources(one) == {"example.com/fast": [NIC]}


def test_a_card_that_disappears_keeps_its_claim_until_it_is_back(one: One) -> None:
    claim(one, NIC)
    gpu = one.node.backend.memory.node.gpus[0].state
    others = list(gpu.others)
    gpu.others = [each for each in others if each.address != NIC]
    one.node.backend.memory.node.files_changed()
    one.settle()
    body = one.store.get("PCIDeviceClaim", one.name_of(NIC))
    assert ready(body) == ("False", "GpuMissing")
    assert ready(one.store.get("PCIDevice", one.name_of(NIC))) == ("False", "Missing")
    gpu.others = others
    one.node.backend.memory.node.files_changed()
    one.settle()
    assert ready(one.store.get("PCIDeviceClaim", one.name_of(NIC))) == ("True", "PassedThrough")


def test_claims_of_pcidevices_are_taken_over_without_a_change_of_drivers(one: One) -> None:
    """A card that pcidevices bound with ``new_id`` stays with its VM, and goes back to its own driver in the end."""
    one.node.files.write(f"/sys/bus/pci/devices/{NIC}/driver/unbind", NIC)
    one.node.files.write("/sys/bus/pci/drivers/vfio-pci/new_id", "8086 10fb")
    one.start_vm(NIC)
    name = one.name_of(NIC)
    claim(one, NIC)
    one.store.objects["PCIDeviceClaim", name]["status"]["kernelDriverToUnbind"] = "ixgbe"
    one.settle()
    assert ready(one.store.get("PCIDeviceClaim", name)) == ("True", "PassedThrough")
    one.stop_vm()
    release(one, NIC)
    assert driver(one, NIC) == "ixgbe"


@pytest.mark.parametrize(
    ("vendor", "product", "device_id", "resource"),
    [
        # The cases of pcidevices' own tests (pkg/apis, pcidevice_test.go).
        ("NVIDIA Corporation", "GA100 [A100 SXM4 40GB]", "20b0", "nvidia.com/GA100_A100_SXM4_40GB"),
        ("NVIDIA Corporation", "GP106 [GeForce GTX 1060 3GB]", "1c02", "nvidia.com/GP106_GEFORCE_GTX_1060_3GB"),
        ("NVIDIA Corporation", "GA104 [RTX A4500 Embedded GPU ]", "24fa", "nvidia.com/GA104_RTX_A4500_EMBEDDED_GPU"),
        ("Test Vendor", "!!!", "5678", "test.com/5678"),
        (
            "Advanced Micro Devices, Inc. [AMD/ATI]",
            "R481 [Radeon X850 XT AGP]",
            "4b49",
            "amd.com/R481_RADEON_X850_XT_AGP",
        ),
        ("Intel Corporation", "I350 Gigabit Network Connection", "1521", "intel.com/I350_GIGABIT_NETWORK_CONNECTION"),
        (
            "Mellanox Technologies",
            "MT2892 Family [ConnectX-6 Dx Flash Recovery]",
            "0212",
            "mellanox.com/MT2892_FAMILY_CONNECTX6_DX_FLASH_RECOVERY",
        ),
        (
            "Broadcom Inc. and subsidiaries",
            "NetXtreme II BCM57810 10 Gigabit Ethernet Virtual Function",
            "16af",
            "broadcom.com/NETXTREME_II_BCM57810_10_GIGABIT_ETHERNET_VF",
        ),
        (
            "Broadcom Inc. and subsidiaries",
            "NetXtreme II BCM57810 10 Gigabit Ethernet really really long name",
            "16af",
            "broadcom.com/16af",
        ),
        # Names that pci.ids does not have, and several spaces in a row.
        ("", "", "abcd", "unknown.com/abcd"),
        ("Intel Corporation", "", "abcd", "intel.com/abcd"),
        ("Intel Corporation", "A  B\tC", "abcd", "intel.com/A_B_C"),
    ],
)
def test_resources_have_the_names_of_pcidevices(vendor: str, product: str, device_id: str, resource: str) -> None:
    assert pci_resource(vendor, product, device_id) == resource


def test_unknown_names_are_described_by_their_ids(tmp_path: Path) -> None:
    one = One("a2:mdev:host", tmp_path, "n", GPU, all_devices=True)
    card = one.node.backend.memory.node.gpus[0].state.others[2]
    card.ids, card.class_id = "fafa:0001", "f20000"
    one.settle()
    status = one.store.get("PCIDevice", one.name_of(NIC))["status"]
    assert status["description"] == "Class f200: Vendor fafa Device 0001"
    assert status["resourceName"] == "unknown.com/0001"
