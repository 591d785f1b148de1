"""USBDevices and their claims, over a simulated node whose devices are plugged in and out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from aliquot.kubernetes.virtual_machines.harvester.device_offer import offer
from aliquot.kubernetes.virtual_machines.harvester.object_changes import changes
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready, shown

KINGSTON, YUBIKEY = "0951:1666", "1050:0407"
NAME = "n-0951-1666-001002"
FINALIZER = "wrangler.cattle.io/usbClaimClient-device-claim-remove"


@pytest.fixture
def one(tmp_path: Path) -> One:
    found = One("a2:mdev", tmp_path, "n", "0000:08:00.0", peripherals=True)
    found.control("usb-plug", ids=KINGSTON, product="DataTraveler 100 G3", manufacturer="Kingston")
    return found.settle()


def claim(one: One, name: str = NAME, **meta: Any) -> One:
    body = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "USBDeviceClaim",
        "metadata": {"name": name, **meta},
        "spec": {"userName": "admin"},
    }
    one.store.create("USBDeviceClaim", body)
    return one.settle()


def offered(one: One, owner: int | None = 107) -> dict[str, Any]:
    found = offer(one.view(), one.store.typed(), {}, owner=owner)
    return {each.name: each.devices for each in found.resources}


def test_a_device_is_listed_under_the_names_of_pcidevices(one: One) -> None:
    # Values: harvester/pcidevices, pkg/controller/usbdevice (usbDeviceName, resourceName, usbDescription). Its database
    # of names is compiled in; without one, the vendor is the device's own manufacturer.
    assert shown(one.store.get("USBDevice", NAME)) == {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "USBDevice",
        "metadata": {"name": NAME, "labels": {"nodename": "n"}},
        "status": {
            "vendorID": "0951",
            "productID": "1666",
            "nodeName": "n",
            "resourceName": f"kubevirt.io/{NAME}",
            "devicePath": "/dev/bus/usb/001/002",
            "description": "Unknown (Kingston) [DataTraveler 100 G3]",
            "pciAddress": "0000:00:14.0",
            "classType": "Mass Storage",
            "enabled": False,
        },
    }


def test_root_hubs_are_left_out_and_other_hubs_are_not(one: One) -> None:
    one.control("usb-plug", ids="05e3:0608", klass="09")
    one.settle()
    assert {name: body["status"]["classType"] for name, body in one.store.of("USBDevice").items()} == {
        NAME: "Mass Storage",
        "n-05e3-0608-001003": "Hub",
    }


def test_a_claim_passes_a_device_through_and_its_deletion_takes_it_back(one: One) -> None:
    assert offered(one) == {}
    claim(one)
    body = one.store.get("USBDeviceClaim", NAME)
    assert ready(body) == ("True", "PassedThrough")
    assert (body["status"]["nodeName"], body["status"]["pciAddress"]) == ("n", "0000:00:14.0")
    assert body["metadata"]["finalizers"] == [FINALIZER]
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"]) == ("USBDevice", NAME)
    assert one.store.get("USBDevice", NAME)["status"]["enabled"] is True
    ((device,),) = offered(one).values()
    assert (device.id, device.healthy, device.paths) == (NAME, True, ("/dev/bus/usb/001/002",))
    assert device.delivery.variable == "USB_RESOURCE_KUBEVIRT_IO_N-0951-1666-001002"
    assert (device.delivery.value, device.delivery.permissions, device.delivery.owner) == ("1:2", "mrw", 107)
    one.store.delete("USBDeviceClaim", NAME)
    one.settle()
    assert one.store.of("USBDeviceClaim") == {}
    assert one.store.get("USBDevice", NAME)["status"]["enabled"] is False
    assert offered(one) == {}


def test_a_claim_that_is_deleted_past_the_webhook_stays_until_its_machine_has_ended(one: One) -> None:
    claim(one)
    one.allocated = {NAME: "vms/virt-launcher-desk-abcde"}
    one.store.delete("USBDeviceClaim", NAME)
    one.settle()
    body = one.store.get("USBDeviceClaim", NAME)
    assert ready(body) == ("False", "Held")
    assert f"kubelet allocated {NAME} to pod vms/virt-launcher-desk-abcde | next: end that pod" in message(body)
    assert offered(one) == {}, "no other VM gets it meanwhile"
    one.allocated, one.kubelet_error = {}, "kubelet does not report which pods have which devices: no socket"
    one.settle()
    assert ready(one.store.get("USBDeviceClaim", NAME)) == ("False", "KubeletAway")
    one.kubelet_error = ""
    one.settle()
    assert one.store.of("USBDeviceClaim") == {}


def test_a_claimed_device_that_is_unplugged_is_kept_as_orphaned_and_unhealthy(one: One) -> None:
    claim(one)
    one.control("usb-unplug", path="/dev/bus/usb/001/002")
    one.settle()
    body = one.store.get("USBDevice", NAME)
    assert (body["status"]["status"], body["status"]["enabled"], ready(body)) == (
        "orphaned",
        True,
        ("False", "Missing"),
    )
    assert ready(one.store.get("USBDeviceClaim", NAME)) == ("False", "Missing")
    ((device,),) = offered(one).values()
    assert (device.healthy, device.paths) == (False, ())
    one.control("usb-plug", ids=KINGSTON)
    one.settle()
    assert set(one.store.of("USBDevice")) == {NAME, "n-0951-1666-001003"}, "plugged in again, it has another number"
    one.store.delete("USBDeviceClaim", NAME)
    one.settle()
    assert set(one.store.of("USBDevice")) == {"n-0951-1666-001003"}
    assert offered(one) == {}


def test_an_unclaimed_device_that_is_unplugged_is_deleted(one: One) -> None:
    one.control("usb-unplug", path="/dev/bus/usb/001/002")
    one.settle()
    assert one.store.of("USBDevice") == {}


def test_a_claim_outlives_a_reboot_in_which_the_device_appears_late(one: One) -> None:
    claim(one)
    state = one.node.backend.memory.node.state
    devices, state.usb = state.usb, []
    one.reboot()
    one.settle()
    assert ready(one.store.get("USBDeviceClaim", NAME)) == ("False", "Missing")
    state.usb = devices
    one.node.backend.memory.node.files_changed()
    one.settle()
    assert ready(one.store.get("USBDeviceClaim", NAME)) == ("True", "PassedThrough")
    body = one.store.get("USBDevice", NAME)
    assert (body["status"].get("status"), body["status"].get("message"), body["status"]["enabled"]) == (
        None,
        None,
        True,
    )


def test_a_device_of_a_controller_that_is_claimed_as_a_whole_is_refused(one: One) -> None:
    controller = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "PCIDeviceClaim",
        "metadata": {"name": "n-000000140"},
        "spec": {"address": "0000:00:14.0", "nodeName": "n", "userName": "admin"},
    }
    one.store.create("PCIDeviceClaim", controller)
    claim(one)
    body = one.store.get("USBDeviceClaim", NAME)
    assert ready(body) == ("False", "Claimed")
    assert "kubectl delete pcideviceclaim n-000000140" in message(body)
    assert one.store.get("USBDevice", NAME)["status"]["enabled"] is False
    assert offered(one) == {}
    one.store.delete("PCIDeviceClaim", "n-000000140")
    one.settle()
    assert ready(one.store.get("USBDeviceClaim", NAME)) == ("True", "PassedThrough")


def test_a_resource_that_kubelet_would_not_take_is_refused(tmp_path: Path) -> None:
    long = "n" * 47
    one = One("a2:mdev", tmp_path, long, "0000:08:00.0", peripherals=True)
    one.control("usb-plug", ids=KINGSTON)
    claim(one.settle(), f"{long}-0951-1666-001002")
    (body,) = one.store.of("USBDeviceClaim").values()
    assert ready(body) == ("False", "NotCapable")
    assert "at most 63 characters" in message(body)
    assert offered(one) == {}


def test_claims_and_devices_of_other_nodes_are_left_alone(one: One) -> None:
    other = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "USBDevice",
        "metadata": {"name": "n2-1050-0407-001002", "labels": {"nodename": "n2"}},
    }
    one.store.create("USBDevice", other)
    claim(one, "n2-1050-0407-001002")
    assert "status" not in one.store.get("USBDeviceClaim", "n2-1050-0407-001002")
    assert "n2-1050-0407-001002" in one.store.of("USBDevice")


def test_objects_of_pcidevices_are_taken_over_as_they_are(one: One) -> None:
    """Move a node to Aliquot: what pcidevices wrote for a claimed device stays, and nothing is deleted."""
    status = shown(one.store.get("USBDevice", NAME))["status"] | {"enabled": True}
    one.store.objects["USBDevice", NAME]["status"] = dict(status)
    owner = {"apiVersion": "devices.harvesterhci.io/v1beta1", "kind": "USBDevice", "name": NAME, "uid": "uid-1"}
    one.store.written.clear()
    claim(one, finalizers=[FINALIZER], ownerReferences=[owner])
    assert shown(one.store.get("USBDevice", NAME))["status"] == status
    assert {(each.verb, each.kind) for each in one.store.written} == {
        ("status", "USBDevice"),
        ("status", "USBDeviceClaim"),
    }


def test_an_agent_without_the_option_writes_nothing_about_usb(one: One) -> None:
    one.serves_peripherals = False
    claim(one)
    one.control("usb-unplug", path="/dev/bus/usb/001/002")
    assert changes(one.view(), one.store.typed(), one.results) == ()
    assert offered(one) == {}


def test_a_device_that_the_host_uses_is_not_offered_until_that_ends(one: One, monkeypatch: pytest.MonkeyPatch) -> None:
    claim(one)
    uses = ["sdb1 is mounted on /data"]
    monkeypatch.setattr("aliquot.hardware.kernel.usb_scan.usb_uses", lambda *_: tuple(uses))
    one.settle()
    assert ready(one.store.get("USBDeviceClaim", NAME)) == ("False", "Held")
    assert "the host itself uses it: sdb1 is mounted on /data" in message(one.store.get("USBDeviceClaim", NAME))
    assert (offered(one), one.store.get("USBDevice", NAME)["status"]["enabled"]) == ({}, False)
    uses.clear()
    one.settle()
    assert ready(one.store.get("USBDeviceClaim", NAME)) == ("True", "PassedThrough")
