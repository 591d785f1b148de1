"""SRIOVNetworkDevices of a node with one port, which the test models: it has up to eight virtual functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from aliquot.core.model.peripherals import NetworkFunction, NetworkPort, Peripherals
from aliquot.kubernetes.virtual_machines.harvester.node_view import Result
from aliquot.kubernetes.virtual_machines.harvester.object_changes import changes
from aliquot.kubernetes.virtual_machines.harvester.peripherals.network_devices import requests
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready, shown

PF, NAME = "0000:06:00.0", "n-ens6f0np0"
PORT = NetworkPort("ens6f0np0", PF, 8)
DISABLED, ENABLED = "sriovNetworkDeviceDisabled", "sriovNetworkDeviceEnabled"
replace = msgspec.structs.replace


class Ported(One):
    """A node with a port. ``refusal`` is the error of its driver, "" for none; ``set`` are the numbers that it got."""

    def __init__(self, folder: Path) -> None:
        super().__init__("a2:mdev", folder, "n", "0000:08:00.0", peripherals=True)
        self.port: NetworkPort | None = PORT
        self.refusal = ""
        self.set: list[int] = []

    def _peripherals(self) -> Peripherals:
        return Peripherals(ports=(self.port,) if self.port is not None else ())

    def set_functions(self) -> bool:
        changed = False
        for each in requests(self.view(), self.store.typed()):
            if self.refusal:
                self.results[each.address] = Result(each.digest, False, "HardwareRefused", self.refusal)
                continue
            self.set.append(each.count)
            self.make(each.count)
            changed = True
        return changed

    def make(self, count: int) -> None:
        assert self.port is not None
        made = tuple(NetworkFunction(f"0000:06:00.{2 + number}") for number in range(count))
        self.port = replace(self.port, functions=made)

    def use(self, **fields: Any) -> None:
        """Change the first function, or the port itself if it has none of the fields."""
        assert self.port is not None
        first, *rest = self.port.functions
        self.port = replace(self.port, functions=(replace(first, **fields), *rest))

    def want(self, count: int) -> One:
        return self.kubectl("SRIOVNetworkDevice", NAME, numVFs=count)

    @property
    def body(self) -> dict[str, Any]:
        return self.store.get("SRIOVNetworkDevice", NAME)

    def claim(self, address: str) -> None:
        body = {
            "apiVersion": "devices.harvesterhci.io/v1beta1",
            "kind": "PCIDeviceClaim",
            "metadata": {"name": self.name_of(address)},
            "spec": {"address": address, "nodeName": "n", "userName": "admin"},
        }
        self.store.create("PCIDeviceClaim", body)
        self.settle()


@pytest.fixture
def one(tmp_path: Path) -> Ported:
    found = Ported(tmp_path)
    found.settle()
    return found


def test_a_port_is_listed_under_the_names_of_pcidevices(one: Ported) -> None:
    # Values: harvester/pcidevices, pkg/util/nichelper (generateSRIOVDev); the annotation lacks a letter there, too.
    assert shown(one.body) == {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "SRIOVNetworkDevice",
        "metadata": {"name": NAME, "labels": {"nodename": "n"}},
        "spec": {"address": PF, "nodeName": "n", "numVFs": 0},
        "status": {"status": DISABLED},
    }
    assert one.body["metadata"]["annotations"] == {"sriov.devices.harvesterhi.io/interface-name": "ens6f0np0"}
    assert ready(one.body) == ("True", "Disabled")


def test_functions_are_set_changed_and_removed(one: Ported) -> None:
    one.want(2)
    assert one.body["status"]["vfAddresses"] == ["0000:06:00.2", "0000:06:00.3"]
    assert one.body["status"]["vfPCIDevices"] == ["n-000006002", "n-000006003"]
    assert (one.body["status"]["status"], ready(one.body)) == (ENABLED, ("True", "Enabled"))
    one.want(4)
    one.want(0)
    assert one.set == [2, 4, 0]
    assert shown(one.body)["status"] == {"status": DISABLED}


def test_a_reboot_sets_the_requested_functions_again(one: Ported) -> None:
    one.want(2)
    one.reboot()
    one.make(0)
    one.settle()
    assert one.set == [2, 2]
    assert ready(one.body) == ("True", "Enabled")


@pytest.mark.parametrize("count", [-1, 9])
def test_an_impossible_number_is_refused(one: Ported, count: int) -> None:
    one.want(count)
    assert (one.set, ready(one.body)) == ([], ("False", "NotCapable"))
    assert "at most 8 virtual functions" in message(one.body)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_functions_stay_while_one_is_claimed(one: Ported, count: int) -> None:
    one.want(2)
    one.claim("0000:06:00.3")
    one.want(count)
    assert (one.set, ready(one.body)) == ([2], ("False", "Claimed"))
    assert "kubectl delete pcideviceclaim n-000006003" in message(one.body)
    assert one.body["status"]["status"] == ENABLED
    one.store.delete("PCIDeviceClaim", "n-000006003")
    one.settle()
    assert one.set == [2, count]


def test_functions_stay_while_one_is_in_use(one: Ported) -> None:
    one.want(2)
    one.use(user="driver vfio-pci, and no interface of the host")
    one.want(0)
    assert (one.set, ready(one.body)) == ([2], ("False", "Held"))
    assert "0000:06:00.2 (driver vfio-pci" in message(one.body)


def test_functions_stay_while_the_port_carries_traffic(one: Ported) -> None:
    one.want(2)
    one.port = replace(PORT, functions=one.port.functions if one.port else (), traffic="interface mgmt-bo")
    one.want(4)
    assert (one.set, ready(one.body)) == ([2], ("False", "Held"))
    assert "mgmt-bo" in message(one.body)
    one.want(2)
    assert ready(one.body) == ("True", "Enabled")


def test_a_port_that_carries_traffic_has_no_object(one: Ported) -> None:
    one.port = replace(PORT, traffic="interface mgmt-bo")
    one.settle()
    assert one.store.of("SRIOVNetworkDevice") == {}
    one.port = PORT
    one.settle()
    assert set(one.store.of("SRIOVNetworkDevice")) == {NAME}


def test_functions_that_exist_before_the_object_are_taken_over(tmp_path: Path) -> None:
    one = Ported(tmp_path)
    one.make(2)
    one.settle()
    assert one.set == [], "pcidevices would remove them"
    assert (one.body["spec"]["numVFs"], one.body["status"]["status"]) == (2, ENABLED)


def test_functions_that_others_make_later_are_reported_until_the_object_allows_their_removal(one: Ported) -> None:
    one.make(3)
    one.settle()
    assert (one.set, ready(one.body)) == ([], ("False", "Untracked"))
    assert one.body["status"]["status"] == DISABLED
    one.mark("SRIOVNetworkDevice", NAME, "aliquot.dev/untracked", "delete")
    assert (one.set, ready(one.body)) == ([0], ("True", "Disabled"))


def test_a_refusal_of_the_driver_is_reported(one: Ported) -> None:
    one.refusal = "the driver of 0000:06:00.0 refuses 2 virtual functions: No space left on device"
    one.want(2)
    assert (one.set, ready(one.body)) == ([], ("False", "HardwareRefused"))
    assert "No space left" in message(one.body)


def test_a_port_that_is_gone_keeps_its_request(one: Ported) -> None:
    one.want(2)
    one.port = None
    one.settle()
    assert ready(one.body) == ("False", "Missing")
    one.want(0)
    assert one.store.of("SRIOVNetworkDevice") == {}


def test_an_object_with_the_address_of_another_port_changes_nothing(one: Ported) -> None:
    one.port = replace(PORT, address="0000:07:00.0")
    one.want(2)
    assert (one.set, ready(one.body)) == ([], ("False", "Misnamed"))


def test_an_object_that_pcidevices_wrote_is_taken_over(one: Ported) -> None:
    one.want(2)
    theirs = shown(one.body)["status"]
    one.store.objects["SRIOVNetworkDevice", NAME]["status"] = dict(theirs)
    one.store.written.clear()
    one.settle()
    assert [(each.verb, set(each.body["status"])) for each in one.store.written] == [
        ("status", {"conditions", "observedGeneration"})
    ]


def test_an_agent_without_the_option_sets_nothing(one: Ported) -> None:
    one.serves_peripherals = False
    one.store.patch("SRIOVNetworkDevice", NAME, {"spec": {"numVFs": 2}})
    assert changes(one.view(), one.store.typed(), one.results) == ()
    assert requests(one.view(), one.store.typed()) == ()


# -- with the ports of a simulated kernel


def addresses(one: One) -> list[str]:
    body = one.store.get("SRIOVNetworkDevice", NAME)
    return list(body["status"].get("vfAddresses", []))


def test_functions_of_a_simulated_port_are_set_claimed_and_set_again_after_a_reboot(tmp_path: Path) -> None:
    one = One("a2:mdev:host", tmp_path, "n", "0000:08:00.0", all_devices=True, peripherals=True).settle()
    assert set(one.store.of("SRIOVNetworkDevice")) == {NAME}, "eno49 and eno50 have no virtual functions"
    assert addresses(one) == ["0000:06:00.2"], "the host had made it"
    one.kubectl("SRIOVNetworkDevice", NAME, numVFs=3)
    assert addresses(one) == ["0000:06:00.2", "0000:06:00.3", "0000:06:00.4"]
    function = one.store.get("PCIDevice", "n-000006003")
    assert function["metadata"]["labels"]["harvesterhci.io/parent-sriov-network-device"] == NAME
    Ported.claim(one, "0000:06:00.3")  # type: ignore[arg-type]
    assert ready(one.store.get("PCIDeviceClaim", "n-000006003")) == ("True", "PassedThrough")
    one.kubectl("SRIOVNetworkDevice", NAME, numVFs=0)
    body = one.store.get("SRIOVNetworkDevice", NAME)
    assert (len(addresses(one)), ready(body)) == (3, ("False", "Claimed"))
    one.kubectl("SRIOVNetworkDevice", NAME, numVFs=3)
    one.reboot()
    one.settle()
    assert len(addresses(one)) == 3
    assert ready(one.store.get("PCIDeviceClaim", "n-000006003")) == ("True", "PassedThrough")
    one.store.delete("PCIDeviceClaim", "n-000006003")
    one.settle()
    one.kubectl("SRIOVNetworkDevice", NAME, numVFs=0)
    assert addresses(one) == []
    assert not {"n-000006002", "n-000006003", "n-000006004"} & set(one.store.of("PCIDevice"))
