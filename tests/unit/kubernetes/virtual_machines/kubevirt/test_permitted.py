"""KubeVirt's permitted devices: Aliquot adds and removes its own entries once, and never touches those of others."""

from __future__ import annotations

import copy
import json
from typing import Any

import msgspec
import pytest

from aliquot.kubernetes.client.object_base import Condition
from aliquot.kubernetes.kinds.harvester_peripherals import USBDevice
from aliquot.kubernetes.kinds.kubevirt import PERMITTED_ANNOTATION
from aliquot.kubernetes.virtual_machines.kubevirt.permitted_devices import (
    KubeVirtSettings,
    PermittedDevice,
    foreign_conflicts,
    patch,
    wanted_entries,
)
from unit.kubernetes.virtual_machines.kubevirt.machines import A2_4A, A2_4Q, L40S, claim, function, vgpu

Q = {"mdevNameSelector": "NVIDIA A2-4Q", "resourceName": A2_4Q, "externalResourceProvider": True}
A = {"mdevNameSelector": "NVIDIA A2-4A", "resourceName": A2_4A, "externalResourceProvider": True}
GPU_UUID = {"pciVendorSelector": "10DE:1EB8", "resourceName": "nvidia.com/TU104GL_Tesla_T4"}
NIC = {"pciVendorSelector": "8086:10ed", "resourceName": "intel.com/82599", "externalResourceProvider": True, "x": 1}
TYPE_Q = "NVIDIA A2-4Q"


class Server:
    """KubeVirt's object, changed by merge patches as on an API server."""

    def __init__(self, devices: dict[str, Any] | None = None, ours: list[str] | None = None) -> None:
        annotations = {} if ours is None else {PERMITTED_ANNOTATION: json.dumps(ours)}
        self.body: dict[str, Any] = {
            "metadata": {"name": "kubevirt", "resourceVersion": "7", "annotations": annotations},
            "spec": {"configuration": {"permittedHostDevices": devices, "emulatedMachines": ["q35"]}},
        }

    @property
    def settings(self) -> KubeVirtSettings:
        return msgspec.convert(self.body, KubeVirtSettings)

    @property
    def devices(self) -> Any:
        return self.body["spec"]["configuration"]["permittedHostDevices"]

    def make(self, *args: Any, **more: Any) -> dict[str, Any]:
        """Reconcile with the objects, and return the patch. Asserts that a second round needs none."""
        found = patch(self.settings, wanted_entries(*args, **more))
        _merge(self.body, copy.deepcopy(found))
        assert patch(self.settings, wanted_entries(*args, **more)) == {}
        return found


def _merge(into: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            _merge(into[key], value)
        else:
            into[key] = value


def made(node: str, type_name: str, address: str = "0000:08:00.4", **more: Any) -> Any:
    return vgpu(node, address, type_name, **more)


def test_the_first_vgpu_of_a_type_permits_it() -> None:
    server = Server()
    found = server.make([made("n1", TYPE_Q)], [], [])
    assert server.devices == {"mediatedDevices": [Q]}
    assert found["metadata"]["resourceVersion"] == "7"
    assert server.settings.metadata.annotations == {PERMITTED_ANNOTATION: f'["{A2_4Q}"]'}


def test_a_type_of_two_nodes_is_one_entry_which_goes_with_the_last() -> None:
    server = Server()
    server.make([made("n1", TYPE_Q), made("n2", TYPE_Q)], [], [])
    assert server.devices["mediatedDevices"] == [Q]
    assert server.make([made("n2", TYPE_Q)], [], []) == {}
    server.make([made("n2", TYPE_Q, configured=False, enabled=False)], [], [])
    assert server.devices["mediatedDevices"] == []
    assert server.settings.metadata.annotations == {PERMITTED_ANNOTATION: "[]"}


def test_entries_of_others_stay_with_every_field_and_in_their_order() -> None:
    server = Server({"pciHostDevices": [GPU_UUID, NIC], "mediatedDevices": [A], "usb": [{"resourceName": "u"}]})
    server.make([made("n1", TYPE_Q)], [function("n1", "0000:41:00.0", L40S)], [claim("n1", "0000:41:00.0")])
    new = {"pciVendorSelector": "10de:26b9", "resourceName": L40S, "externalResourceProvider": True}
    assert server.devices == {
        "pciHostDevices": [GPU_UUID, NIC, new],
        "mediatedDevices": [A, Q],
        "usb": [{"resourceName": "u"}],
    }
    server.make([], [], [])
    assert server.devices == {"pciHostDevices": [GPU_UUID, NIC], "mediatedDevices": [A], "usb": [{"resourceName": "u"}]}


def test_entries_that_grew_without_end_are_one_again() -> None:
    # harvester#10008: the same entry was appended again and again.
    nic = copy.deepcopy(NIC)
    server = Server({"mediatedDevices": [Q, Q, A, Q], "pciHostDevices": [nic, nic]})
    server.make([made("n1", TYPE_Q)], [], [])
    assert server.devices == {"mediatedDevices": [Q, A], "pciHostDevices": [nic, nic]}


def test_what_pcidevices_wrote_is_taken_over_and_goes_with_its_vgpu() -> None:
    server = Server({"mediatedDevices": [Q, A]})
    server.make([made("n1", TYPE_Q)], [], [])
    assert server.devices == {"mediatedDevices": [Q, A]}
    server.make([], [], [])
    assert server.devices == {"mediatedDevices": [A]}


def test_a_reboot_removes_no_permission() -> None:
    # The vGPU is gone until it is created again, but its VM must not be refused meanwhile.
    server = Server()
    server.make([made("n1", TYPE_Q)], [], [])
    assert server.make([made("n1", TYPE_Q, configured=False)], [], []) == {}


def test_a_card_that_is_being_bound_again_stays_permitted() -> None:
    gpu = (function("n1", "0000:41:00.0", L40S),)
    server = Server()
    server.make([], gpu, [claim("n1", "0000:41:00.0")])
    assert server.make([], gpu, [claim("n1", "0000:41:00.0", passed=False)]) == {}
    server.make([], gpu, [])
    assert server.devices["pciHostDevices"] == []


def test_what_a_machine_has_stays_permitted() -> None:
    server = Server()
    server.make([made("n1", TYPE_Q)], [], [])
    assert server.make([], [], [], used=[A2_4Q]) == {}


def test_with_vendor_vfio_a_vgpu_is_a_pci_device() -> None:
    vf = function("n1", "0000:08:00.4", A2_4Q, "10de:25b6")
    server = Server({"mediatedDevices": [Q]})
    server.make([made("n1", TYPE_Q, uuid="746")], [vf], [claim("n1", "0000:08:00.4", reserves=True)])
    assert server.devices == {
        "mediatedDevices": [],
        "pciHostDevices": [{"pciVendorSelector": "10de:25b6", "resourceName": A2_4Q, "externalResourceProvider": True}],
    }


def test_two_nodes_of_different_frameworks_need_both_entries() -> None:
    vf = function("n2", "0000:08:00.4", A2_4Q, "10de:25b6")
    want = wanted_entries([made("n1", TYPE_Q), made("n2", TYPE_Q, uuid="746")], [vf], [])
    assert want.entries == {
        PermittedDevice("mediatedDevices", A2_4Q, TYPE_Q),
        PermittedDevice("pciHostDevices", A2_4Q, "10de:25b6"),
    }


def test_what_pcidevices_makes_on_its_nodes_is_left_as_it_is() -> None:
    # This applies even if our nodes have the same device: pcidevices appends its entry again and again, and reads it by
    # its own rules.
    server = Server({"mediatedDevices": [Q, Q]})
    both = [made("n1", TYPE_Q), made("n2", TYPE_Q)]
    assert server.make([both[0], made("n2", "NVIDIA A2-4A")], [], [], foreign_nodes=["n1"])
    assert server.devices == {"mediatedDevices": [Q, Q, A]}
    server.make(both, [], [], foreign_nodes=["n1"])
    assert server.devices == {"mediatedDevices": [Q, Q]}
    server.make(both[:1], [], [], foreign_nodes=["n1"])
    assert server.devices == {"mediatedDevices": [Q, Q]}, "it still belongs to pcidevices"
    server.make(both[:1], [], [])
    assert server.devices == {"mediatedDevices": [Q]}, "pcidevices is gone: one is enough"


def test_a_function_whose_ids_are_not_known_yet_is_not_permitted_yet() -> None:
    assert wanted_entries([made("n1", TYPE_Q, uuid="746")], [], []).entries == frozenset()


def test_kubevirts_own_entry_for_our_resource_is_left_alone_and_reported() -> None:
    own = {"mdevNameSelector": TYPE_Q, "resourceName": A2_4Q}
    server = Server({"mediatedDevices": [own]})
    want = wanted_entries([made("n1", TYPE_Q)], [], [])
    assert patch(server.settings, want) == {}
    assert server.devices == {"mediatedDevices": [own]}
    assert foreign_conflicts(server.settings, want)[0].startswith(
        f"KubeVirt's permittedHostDevices has {A2_4Q} without external"
    )


def test_kubevirts_own_entry_stays_when_ours_of_the_same_resource_goes() -> None:
    own = {"mdevNameSelector": "NVIDIA A2-4Q (old)", "resourceName": A2_4Q}
    server = Server({"mediatedDevices": [own, own, Q]}, [A2_4Q])
    server.make([], [], [])
    assert server.devices == {"mediatedDevices": [own, own]}


@pytest.mark.parametrize("spoilt", ["{", "7", '{"a": 1}', "[1]"])
def test_a_spoilt_memory_costs_no_entry(spoilt: str) -> None:
    server = Server({"mediatedDevices": [Q, A]})
    server.body["metadata"]["annotations"][PERMITTED_ANNOTATION] = spoilt
    server.make([made("n1", TYPE_Q)], [], [])
    assert server.devices == {"mediatedDevices": [Q, A]}
    assert server.settings.metadata.annotations == {PERMITTED_ANNOTATION: f'["{A2_4Q}"]'}


def test_rows_that_are_no_rows_are_kept() -> None:
    odd: dict[str, Any] = {"mediatedDevices": [None, "x", {}, Q]}
    server = Server(copy.deepcopy(odd), [A2_4Q])
    server.make([], [], [])
    assert server.devices == {"mediatedDevices": [None, "x", {}]}


def test_another_vendors_function_that_we_serve_is_permitted_and_goes_with_its_claim() -> None:
    server, address, resource = Server({"pciHostDevices": [GPU_UUID]}), "0000:04:00.1", "intel.com/82599ES"
    theirs = function("n1", address, resource, "8086:10fb")
    status = msgspec.structs.replace(theirs.status, conditions=(Condition("Ready", "True"),))
    served = msgspec.structs.replace(theirs, status=status)
    assert server.make([], [theirs], [claim("n1", address)]) == {}, "without our conditions it is not ours"
    server.make([], [served], [claim("n1", address)])
    entry = {"pciVendorSelector": "8086:10fb", "resourceName": resource, "externalResourceProvider": True}
    assert server.devices == {"pciHostDevices": [GPU_UUID, entry]}
    server.make([], [served], [])
    assert server.devices == {"pciHostDevices": [GPU_UUID]}


STICK = "kubevirt.io/n1-0951-1666-001002"
USB = {
    "selectors": [{"vendor": "0951", "product": "1666"}],
    "resourceName": STICK,
    "externalResourceProvider": True,
}


def stick(*, enabled: bool = True, node: str = "n1", ours: bool = True) -> USBDevice:
    status = {"vendorID": "0951", "productID": "1666", "nodeName": node, "resourceName": STICK, "enabled": enabled}
    conditions = [{"type": "Ready", "status": "True"}] if ours else []
    body = {"metadata": {"name": STICK.partition("/")[2]}, "status": status | {"conditions": conditions}}
    return msgspec.convert(body, USBDevice)


def test_a_claimed_usb_device_is_permitted_by_its_ids_as_pcidevices_does() -> None:
    server = Server()
    server.make([], [], [], usb=[stick()])
    assert server.devices == {"usb": [USB]}
    server.make([], [], [], usb=[stick(enabled=False)])
    assert server.devices == {"usb": [USB]}, "it is still claimed"
    server.make([], [], [])
    assert server.devices == {"usb": []}


def test_a_usb_device_of_pcidevices_keeps_its_entry() -> None:
    for theirs in (stick(ours=False), stick(node="n2")):
        server = Server({"usb": [USB]}, [STICK])
        assert "spec" not in server.make([], [], [], foreign_nodes={"n2"}, usb=[theirs])
        assert server.devices == {"usb": [USB]}


def test_usb_entries_of_others_are_left_alone() -> None:
    odd: list[Any] = [{"resourceName": "kubevirt.io/other", "selectors": "?"}, 7, {"resourceName": STICK}]
    server = Server({"usb": odd})
    server.make([], [], [], usb=[stick()])
    assert server.devices == {"usb": [*odd, USB]}
    server.make([], [], [])
    assert server.devices == {"usb": odd}
