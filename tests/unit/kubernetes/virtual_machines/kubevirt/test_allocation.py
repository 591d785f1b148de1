"""The annotation of a VM, from the devices of its launcher, and the names that its spec gets afterwards."""

from __future__ import annotations

import pytest

from aliquot.kubernetes.kinds.kubevirt import DeviceRequest, VmDevices
from aliquot.kubernetes.virtual_machines.kubevirt.allocation import (
    VmAllocation,
    allocation_of,
    merge_foreign,
    parse,
    removal_patch,
    rename_patch,
    render,
)
from aliquot.kubernetes.virtual_machines.kubevirt.launcher_pod import by_resource, devices

Q, A = "nvidia.com/NVIDIA_A2-4Q", "nvidia.com/NVIDIA_A2-4A"
ONE, TWO = "e898f311-6b9e-46a2-b728-144d01af1a7c", "95242535-e423-41a6-bb58-f28a44d68d66"
NAMES = {ONE: "n-000008004", TWO: "n-000008005", "0000:08:00.6": "n-000008006", "0000:08:00.7": "n-000008007"}


def machine(gpus: tuple[str, ...] = (), host: tuple[str, ...] = ()) -> VmDevices:
    """Build entries that are named after their resource, in KubeVirt's two lists."""
    return VmDevices(
        tuple(DeviceRequest(f"gpu{n}", each) for n, each in enumerate(gpus)),
        tuple(DeviceRequest(f"host{n}", each) for n, each in enumerate(host)),
    )


def test_two_uuids_in_one_variable_are_two_devices_of_the_machine() -> None:
    # As in virt-launcher's environment for a VM with two vGPUs of one type.
    text = f"PATH=/bin\nMDEV_PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q={ONE},{TWO}\n"
    found = allocation_of(machine((Q, Q)), by_resource(devices(text), [Q, Q]), NAMES)
    assert found == VmAllocation(gpus={Q: ("n-000008004", "n-000008005")})


def test_an_address_that_is_there_twice_is_one_device() -> None:
    text = "PCI_RESOURCE_NVIDIA_COM_NVIDIA_A2-4Q=0000:08:00.6,0000:08:00.6,0000:08:00.7,0000:08:00.6\n"
    found = allocation_of(machine(host=(Q, Q)), by_resource(devices(text), [Q]), NAMES)
    assert found == VmAllocation(hostdevices={Q: ("n-000008006", "n-000008007")})


def test_what_stands_for_no_object_and_what_was_not_requested_is_left_out() -> None:
    ids = {Q: ["ffffffff-0000-0000-0000-000000000000"], A: [ONE]}
    assert allocation_of(machine((Q,)), ids, NAMES) == VmAllocation()


def test_a_resource_of_both_lists_is_split_in_their_order() -> None:
    ids = {Q: [TWO, ONE]}
    assert allocation_of(machine((Q,), (Q,)), ids, NAMES) == VmAllocation({Q: ("n-000008005",)}, {Q: ("n-000008004",)})


def test_a_device_that_comes_by_a_claim_of_dynamic_allocation_is_no_business_of_ours() -> None:
    entry = DeviceRequest("gpu", Q, claim_name="claim")
    assert allocation_of(VmDevices((entry,)), {Q: [ONE]}, NAMES) == VmAllocation()
    assert rename_patch(VmDevices((entry,)), VmAllocation({Q: ("n-000008004",)})) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"gpus":{"nvidia.com/NVIDIA_A2-4Q":["n-000008004"]}}',
        '{"gpus":{"a/b":["x"],"c/d":["y","z"]},"hostdevices":{"e/f":["g"]}}',
        '{"hostdevices":{"e/f":["g"]}}',
        "{}",
    ],
)
def test_what_is_read_is_written_in_the_same_words(text: str) -> None:
    found = parse(text)
    assert found is not None
    assert render(found) == text


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gpus":1}', '{"gpus":{"a":[1]}}', "null", '"x"', "\x00"])
def test_nonsense_says_nothing(text: str) -> None:
    assert parse(text) is None


def test_names_are_sorted_as_go_sorts_them() -> None:
    assert render(VmAllocation({Q: ("b",), A: ("a",)})) == f'{{"gpus":{{"{A}":["a"],"{Q}":["b"]}}}}'


def test_a_stopped_machine_gets_the_names_of_what_it_had() -> None:
    patch = rename_patch(machine((Q, A, Q)), VmAllocation({Q: ("n-1", "n-2"), A: ("n-3",)}))
    path = "/spec/template/spec/domain/devices/gpus"
    assert [op for op in patch if op["op"] == "replace"] == [
        {"op": "replace", "path": f"{path}/{n}/name", "value": name} for n, name in enumerate(("n-1", "n-3", "n-2"))
    ]
    assert patch[0] == {"op": "test", "path": f"{path}/0/deviceName", "value": Q}, "refused if the spec has changed"


def test_an_entry_for_which_nothing_was_given_keeps_its_name() -> None:
    patch = rename_patch(machine((Q, Q)), VmAllocation({Q: ("n-1",)}))
    assert [op["path"][-6:] for op in patch if op["op"] == "replace"] == ["0/name"]


def test_right_names_need_no_patch() -> None:
    of = VmDevices((DeviceRequest("n-1", Q), DeviceRequest("n-2", Q)))
    assert rename_patch(of, VmAllocation({Q: ("n-1", "n-2")})) == []


def test_no_name_is_given_that_would_then_be_there_twice() -> None:
    # KubeVirt refuses a VM with two devices of one name: it could never be started again.
    of = VmDevices((DeviceRequest("gpu", Q), DeviceRequest("n-1", A)))
    assert rename_patch(of, VmAllocation({Q: ("n-1",)})) == []


def test_the_notes_of_others_stay_and_ours_are_replaced() -> None:
    previous = VmAllocation({Q: ("n-9", "n-000008004")}, {"intel.com/card": ("n-000001000",)})
    found = merge_foreign(VmAllocation({A: ("n-000008005",)}), previous, set(NAMES.values()))
    assert found == VmAllocation({A: ("n-000008005",)}, {"intel.com/card": ("n-000001000",)})


def test_the_annotation_goes_only_while_it_says_the_same() -> None:
    assert removal_patch("{}") == [
        {"op": "test", "path": "/metadata/annotations/harvesterhci.io~1deviceAllocationDetails", "value": "{}"},
        {"op": "remove", "path": "/metadata/annotations/harvesterhci.io~1deviceAllocationDetails"},
    ]
