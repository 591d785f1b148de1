"""Rules for USB devices, their claims, and the virtual functions of network ports."""

from __future__ import annotations

from typing import Any

import pytest

from aliquot.kubernetes.manifests.webhooks import PCIDEVICES
from aliquot.kubernetes.virtual_machines.harvester.admission.review import judge
from support.admissions import JSON, claim, environment, instance, machine, merged, request

NAME = "n1-0951-1666-001002"
RESOURCE = f"kubevirt.io/{NAME}"
PORT = "n1-ens6f0np0"
VFS = ("n1-000006002", "n1-000006003")


def usb(enabled: bool = True, node: str = "n1") -> JSON:
    status = {"nodeName": node, "pciAddress": "0000:00:14.0", "resourceName": RESOURCE, "enabled": enabled}
    return {"metadata": {"name": NAME, "labels": {"nodename": node}}, "status": status}


def usb_claim(user: str = "alice", **status: Any) -> JSON:
    return {"metadata": {"name": NAME}, "spec": {"userName": user}, "status": status}


def port(count: int, *functions: str) -> JSON:
    spec = {"address": "0000:06:00.0", "nodeName": "n1", "numVFs": count}
    return {"metadata": {"name": PORT}, "spec": spec, "status": {"vfPCIDevices": list(functions)}}


def message(kind: str, old: Any, new: Any, user: str = "alice", **given: Any) -> str:
    return judge(request(kind, old, new, user=user), environment(**given)).message


def test_a_device_that_is_passed_through_is_not_deleted() -> None:
    assert f"kubectl delete usbdeviceclaim {NAME}" in message("usbdevices", usb(), None)
    assert message("usbdevices", usb(enabled=False), None) == ""
    assert message("usbdevices", usb(node="gone"), None) == "", "its node is gone"


def test_a_device_of_a_claimed_controller_cannot_be_claimed() -> None:
    given: dict[str, Any] = {"usb": [usb(False)], "claims": [claim("0000:00:14.0")]}
    assert "is claimed as a whole" in message("usbdeviceclaims", None, usb_claim(), **given)
    reserved = claim("0000:00:14.0", annotations={"pcidevices.harvesterhci.io/skip-vfio-binding": "true"})
    assert message("usbdeviceclaims", None, usb_claim(), usb=[usb(False)], claims=[reserved]) == ""
    elsewhere = claim("0000:00:14.0", node="n2")
    assert message("usbdeviceclaims", None, usb_claim(), usb=[usb(False)], claims=[elsewhere]) == ""


def test_a_claim_without_a_device_is_admitted_with_a_warning() -> None:
    verdict = judge(request("usbdeviceclaims", None, usb_claim()), environment())
    assert verdict.allowed
    assert f"USBDevice {NAME} does not exist" in verdict.warnings[0]


def test_the_user_of_a_claim_is_immutable() -> None:
    assert "cannot be changed" in message("usbdeviceclaims", usb_claim(), usb_claim("bob"))
    assert message("usbdeviceclaims", usb_claim(), merged(usb_claim(), metadata={"labels": {"a": "b"}})) == ""


@pytest.mark.parametrize("entry_name", [NAME, "stick"], ids=["name of the object", "any name"])
@pytest.mark.parametrize("running", [True, False])
def test_a_claim_that_a_vm_lists_is_not_deleted(entry_name: str, running: bool) -> None:
    row = {"name": entry_name, "deviceName": RESOURCE}
    strategy = "Always" if running else "Halted"
    given: Any = {"vms": [machine("db", row, field="hostDevices", strategy=strategy)], "usb": [usb()]}
    if running:
        given["instances"] = [instance("db", "n1", row, field="hostDevices")]
    given["usb_claims"] = [usb_claim(nodeName="n1")]
    assert "in use with VM db" in message("usbdeviceclaims", usb_claim(nodeName="n1"), None, **given)
    assert message("usbdeviceclaims", usb_claim(nodeName="n1"), None, PCIDEVICES, **given, accounts=[PCIDEVICES]) == ""


def test_a_claim_that_no_vm_lists_is_deleted() -> None:
    other = machine("db", {"name": "x", "deviceName": "kubevirt.io/n1-1050-0407-001003"}, field="hostDevices")
    given: dict[str, Any] = {"vms": [other], "usb": [usb()], "usb_claims": [usb_claim(nodeName="n1")]}
    assert message("usbdeviceclaims", usb_claim(nodeName="n1"), None, **given) == ""


@pytest.mark.parametrize("wanted", [0, 1, 4])
def test_the_number_of_functions_stays_while_one_is_claimed(wanted: int) -> None:
    given: dict[str, Any] = {"claims": [claim("0000:06:00.2")]}
    found = message("sriovnetworkdevices", port(2, *VFS), port(wanted, *VFS), **given)
    assert found.startswith(f"cannot change numVFs of {PORT} while its virtual functions are claimed ({VFS[0]})")
    assert message("sriovnetworkdevices", port(2, *VFS), port(wanted, *VFS)) == ""
    assert message("sriovnetworkdevices", port(2, *VFS), port(2, *VFS), **given) == ""


def test_a_number_that_the_port_cannot_have_is_taken_back_while_a_function_is_claimed() -> None:
    given: dict[str, Any] = {"claims": [claim("0000:06:00.2")]}
    existing = {"vfAddresses": ["0000:06:00.2", "0000:06:00.3"], "vfPCIDevices": list(VFS)}
    too_many = merged(port(9), status=existing)
    assert message("sriovnetworkdevices", too_many, merged(too_many, spec={"numVFs": 2}), **given) == ""
    assert "are claimed" in message("sriovnetworkdevices", too_many, merged(too_many, spec={"numVFs": 4}), **given)


def test_a_port_whose_functions_are_claimed_is_not_deleted() -> None:
    given: dict[str, Any] = {"claims": [claim("0000:06:00.3")]}
    assert f"cannot delete {PORT}" in message("sriovnetworkdevices", port(2, *VFS), None, **given)
    assert message("sriovnetworkdevices", port(2, *VFS), None) == ""
    assert message("sriovnetworkdevices", port(2, *VFS), None, **given, nodes=[{"metadata": {"name": "n2"}}]) == ""


def test_a_port_does_not_move() -> None:
    moved = merged(port(2, *VFS), spec={"address": "0000:07:00.0"})
    assert "cannot be changed" in message("sriovnetworkdevices", port(2, *VFS), moved)
