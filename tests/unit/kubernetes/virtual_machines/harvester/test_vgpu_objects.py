"""VGPUDevices: created, kept and removed vGPUs, and the reasons for refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aliquot.kubernetes.kinds.harvester_names import SKIP_MIG_ANNOTATION
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready

PCI = "0000:08:00.0"
FIRST, SECOND, THIRD = "0000:08:00.4", "0000:08:00.5", "0000:08:00.6"
L40S, VF0, VF1 = "0000:26:00.0", "0000:26:00.4", "0000:26:00.5"
UUID = "11111111-2222-4333-8444-555555555555"
DELETE = "aliquot.dev/untracked"


@pytest.fixture
def a2(tmp_path: Path) -> One:
    """Build an A2 with its virtual functions on."""
    one = One("a2:mdev", tmp_path, "n", PCI).settle()
    return one.kubectl("SRIOVGPUDevice", "n-000008000", enabled=True)


@pytest.fixture
def l40s(tmp_path: Path) -> One:
    """Build an L40S in a kernel with vendor-specific VFIO, its virtual functions on."""
    one = One("l40s:vfio", tmp_path, "n", L40S).settle()
    return one.kubectl("SRIOVGPUDevice", "n-000026000", enabled=True)


def enable(one: One, address: str, kind: str) -> One:
    return one.kubectl("VGPUDevice", one.name_of(address), enabled=True, vGPUTypeName=kind)


def disable(one: One, address: str) -> One:
    return one.kubectl("VGPUDevice", one.name_of(address), enabled=False, vGPUTypeName="")


# -- on and off


def test_enable_and_disable(a2: One) -> None:
    enable(a2, FIRST, "NVIDIA A2-4Q")
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    assert ready(a2.vgpu(FIRST)) == ("True", "Configured")
    disable(a2, FIRST)
    assert a2.live() == {}
    status = a2.vgpu(FIRST)["status"]
    assert "uuid" not in status
    assert "vGPUStatus" not in status
    assert len(status["availableTypes"]) == 15
    assert ready(a2.vgpu(FIRST)) == ("True", "Disabled")


def test_a_request_that_is_met_writes_nothing_more(a2: One) -> None:
    enable(a2, FIRST, "NVIDIA A2-4Q")
    before = len(a2.store.written)
    a2.now += 3600
    assert a2.publish() == 0
    assert not a2.act()
    assert len(a2.store.written) == before


def test_two_sizes_on_one_gpu_are_refused_for_the_second_alone(a2: One) -> None:
    enable(a2, FIRST, "NVIDIA A2-4Q")
    enable(a2, SECOND, "NVIDIA A2-8Q")
    enable(a2, THIRD, "NVIDIA A2-4A")
    assert a2.live() == {FIRST: "NVIDIA A2-4Q", THIRD: "NVIDIA A2-4A"}
    assert ready(a2.vgpu(SECOND)) == ("False", "EqualSize")
    assert "aliquot" in message(a2.vgpu(SECOND))
    assert ready(a2.device(PCI)) == ("True", "Enabled")


def test_the_fifth_a2_4q_says_that_four_are_the_most(a2: One) -> None:
    addresses = a2.device(PCI)["status"]["vfAddresses"][:5]
    for address in addresses:
        a2.store.patch("VGPUDevice", a2.name_of(address), {"spec": {"enabled": True, "vGPUTypeName": "NVIDIA A2-4Q"}})
    a2.settle()
    assert sorted(a2.live()) == sorted(addresses[:4])
    assert ready(a2.vgpu(addresses[4])) == ("False", "MaxVgpus")
    assert "4" in message(a2.vgpu(addresses[4]))
    disable(a2, addresses[0])
    assert sorted(a2.live()) == sorted(addresses[1:])
    assert ready(a2.vgpu(addresses[4])) == ("True", "Configured")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("", "NoType"), ("NVIDIA A2-5Q", "UnknownType"), ("bogus", "UnknownType"), ("NVIDIA L40S-4Q", "WrongCard")],
)
def test_a_type_that_this_gpu_has_not(a2: One, name: str, reason: str) -> None:
    enable(a2, FIRST, name)
    enable(a2, SECOND, "NVIDIA A2-4Q")
    assert a2.live() == {SECOND: "NVIDIA A2-4Q"}
    assert ready(a2.vgpu(FIRST)) == ("False", reason)
    assert "kubectl get vgpudevice n-000008004" in message(a2.vgpu(FIRST))


def test_a_type_that_was_changed_while_enabled_touches_nothing(a2: One) -> None:
    enable(a2, FIRST, "NVIDIA A2-4Q")
    was = a2.vgpu(FIRST)["status"]["uuid"]
    enable(a2, FIRST, "NVIDIA A2-8Q")
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    status = a2.vgpu(FIRST)["status"]
    assert (status["configureVGPUTypeName"], status["uuid"]) == ("NVIDIA A2-4Q", was)
    assert ready(a2.vgpu(FIRST)) == ("False", "TypeChanged")
    disable(a2, FIRST)
    enable(a2, FIRST, "NVIDIA A2-8Q")
    assert a2.live() == {FIRST: "NVIDIA A2-8Q"}


# -- in use


def test_a_vgpu_in_use_stays_and_hinders_no_sibling(a2: One) -> None:
    enable(a2, FIRST, "NVIDIA A2-4Q")
    a2.start_vm(a2.vgpu(FIRST)["status"]["uuid"])
    disable(a2, FIRST)
    enable(a2, SECOND, "NVIDIA A2-4A")
    assert a2.live() == {FIRST: "NVIDIA A2-4Q", SECOND: "NVIDIA A2-4A"}
    assert ready(a2.vgpu(FIRST)) == ("False", "Held")
    assert "in use by" in message(a2.vgpu(FIRST))
    a2.stop_vm()
    a2.settle()
    assert a2.live() == {SECOND: "NVIDIA A2-4A"}
    assert ready(a2.vgpu(FIRST)) == ("True", "Disabled")


# -- vGPUs of other programs


def test_a_vgpu_made_by_hand_is_reported_and_left_alone(a2: One) -> None:
    a2.make_by_hand(FIRST, 746, UUID)
    a2.settle()
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    assert ready(a2.vgpu(FIRST)) == ("False", "Untracked")
    status = a2.vgpu(FIRST)["status"]
    assert not {"uuid", "vGPUStatus", "configureVGPUTypeName", "availableTypes"} & set(status)
    # It stays regardless of other events on the GPU.
    enable(a2, SECOND, "NVIDIA A2-4A")
    disable(a2, SECOND)
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}


def test_the_annotation_lets_it_go(a2: One) -> None:
    a2.make_by_hand(FIRST, 746, UUID)
    a2.settle()
    a2.mark("VGPUDevice", a2.name_of(FIRST), DELETE, "delete")
    assert a2.live() == {}


def test_the_annotation_ends_no_virtual_machine(a2: One) -> None:
    a2.make_by_hand(FIRST, 746, UUID)
    a2.start_vm(UUID)
    a2.settle()
    a2.mark("VGPUDevice", a2.name_of(FIRST), DELETE, "delete")
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    assert ready(a2.vgpu(FIRST)) == ("False", "Held")


def test_enabling_with_its_type_adopts_it(a2: One) -> None:
    a2.make_by_hand(FIRST, 746, UUID)
    a2.settle()
    enable(a2, FIRST, "NVIDIA A2-4Q")
    assert a2.vgpu(FIRST)["status"]["uuid"] == UUID
    assert ready(a2.vgpu(FIRST)) == ("True", "Configured")


def test_enabling_with_another_type_does_not_replace_it(a2: One) -> None:
    a2.make_by_hand(FIRST, 746, UUID)
    a2.settle()
    enable(a2, FIRST, "NVIDIA A2-8Q")
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    assert ready(a2.vgpu(FIRST)) == ("False", "Untracked")
    assert "vGPUStatus" not in a2.vgpu(FIRST)["status"]


def test_an_object_made_again_over_a_live_vgpu_adopts_it(a2: One) -> None:
    # The original disables such an object, and then removes the running vGPU.
    enable(a2, FIRST, "NVIDIA A2-4Q")
    uuid = a2.vgpu(FIRST)["status"]["uuid"]
    a2.store.delete("VGPUDevice", a2.name_of(FIRST))
    a2.settle()
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    assert a2.vgpu(FIRST)["spec"]["enabled"] is True
    assert a2.vgpu(FIRST)["spec"]["vGPUTypeName"] == "NVIDIA A2-4Q"
    assert a2.vgpu(FIRST)["status"]["uuid"] == uuid


def test_a_disabled_object_restored_without_status_ends_nothing(a2: One) -> None:
    enable(a2, FIRST, "NVIDIA A2-4Q")
    body = a2.vgpu(FIRST)
    body["status"] = {}
    body["spec"] |= {"enabled": False, "vGPUTypeName": ""}
    a2.settle()
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    assert ready(a2.vgpu(FIRST)) == ("False", "Untracked")


def test_a_disabled_object_that_knows_another_uuid_ends_nothing(a2: One) -> None:
    # Our vGPU was removed by another program, and another one created in its place.
    enable(a2, FIRST, "NVIDIA A2-4Q")
    known = a2.vgpu(FIRST)["status"]["uuid"]
    a2.node.files.write(f"/sys/bus/mdev/devices/{known}/remove", "1\n")
    a2.make_by_hand(FIRST, 746, UUID)
    a2.store.patch("VGPUDevice", a2.name_of(FIRST), {"spec": {"enabled": False}})
    a2.settle()
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}
    assert ready(a2.vgpu(FIRST)) == ("False", "Untracked")


def test_a_vgpu_that_was_removed_by_hand_comes_back(a2: One) -> None:
    enable(a2, FIRST, "NVIDIA A2-4Q")
    known = a2.vgpu(FIRST)["status"]["uuid"]
    a2.node.files.write(f"/sys/bus/mdev/devices/{known}/remove", "1\n")
    a2.settle()
    assert a2.vgpu(FIRST)["status"]["uuid"] == known
    assert a2.live() == {FIRST: "NVIDIA A2-4Q"}


# -- reboot


def test_a_reboot_loses_nothing_and_keeps_the_uuids_that_machines_know(a2: One) -> None:
    # An adopted vGPU has a UUID that Aliquot would not have chosen.
    a2.make_by_hand(FIRST, 746, UUID)
    a2.settle()
    enable(a2, FIRST, "NVIDIA A2-4Q")
    enable(a2, SECOND, "NVIDIA A2-4A")
    before = {a: a2.vgpu(a)["status"]["uuid"] for a in (FIRST, SECOND)}
    a2.reboot()
    a2.blind = "the driver is being installed"
    a2.settle()
    assert len(a2.store.of("VGPUDevice")) == 16
    assert "vGPUStatus" not in a2.vgpu(FIRST)["status"]
    assert ready(a2.vgpu(FIRST)) == ("Unknown", "DriverPodNotReady")
    a2.blind = ""
    a2.settle()
    assert a2.live() == {FIRST: "NVIDIA A2-4Q", SECOND: "NVIDIA A2-4A"}
    assert {a: a2.vgpu(a)["status"]["uuid"] for a in (FIRST, SECOND)} == before


def test_what_cannot_be_seen_is_not_shown_to_be_gone(a2: One) -> None:
    # The driver's pod restarts while VMs run.
    enable(a2, FIRST, "NVIDIA A2-4Q")
    status = dict(a2.vgpu(FIRST)["status"])
    a2.blind = "no pod of the driver is ready"
    a2.settle()
    now = a2.vgpu(FIRST)["status"]
    assert ready(a2.vgpu(FIRST)) == ("Unknown", "DriverPodNotReady")
    assert {k: v for k, v in now.items() if k != "conditions"} == {k: v for k, v in status.items() if k != "conditions"}
    assert a2.intents()[0].desired is None
    assert a2.intents()[0].reason == "DriverPodNotReady"
    a2.blind = ""
    a2.settle()
    assert a2.vgpu(FIRST)["status"]["uuid"] == status["uuid"]


def test_a_condition_keeps_its_time_while_only_words_change(a2: One) -> None:
    enable(a2, FIRST, "NVIDIA A2-4Q")
    since = a2.vgpu(FIRST)["status"]["conditions"][0]["lastTransitionTime"]
    a2.now += 60
    disable(a2, FIRST)
    assert ready(a2.vgpu(FIRST)) == ("True", "Disabled")
    last = a2.vgpu(FIRST)["status"]["conditions"][0]["lastTransitionTime"]
    assert last != since, "it was not true in between"
    a2.now += 60
    a2.store.patch("VGPUDevice", a2.name_of(FIRST), {"metadata": {"annotations": {"x": "y"}}})
    a2.settle()
    assert a2.vgpu(FIRST)["status"]["conditions"][0]["lastTransitionTime"] == last


# -- vendor-specific VFIO


def test_vendor_vfio_configures_with_a_claim_and_a_resource(l40s: One) -> None:
    enable(l40s, VF0, "NVIDIA L40S-12A")
    assert l40s.live() == {VF0: "NVIDIA L40S-12A"}
    status = l40s.vgpu(VF0)["status"]
    assert (status["configureVGPUTypeName"], status["uuid"]) == ("NVIDIA L40S-12A", "1163")
    device = l40s.store.get("PCIDevice", "n-000026004")
    assert device["status"]["resourceName"] == "nvidia.com/NVIDIA_L40S-12A"
    key = "pcidevice.harvesterhci.io/override-resource-name"
    assert device["metadata"]["annotations"][key] == "nvidia.com/NVIDIA_L40S-12A"
    claim = l40s.store.get("PCIDeviceClaim", "n-000026004")
    assert claim["spec"] == {"address": VF0, "nodeName": "n", "userName": "admin"}
    assert claim["metadata"]["annotations"] == {
        "pcidevices.harvesterhci.io/skip-vfio-binding": "true",
        key: "nvidia.com/NVIDIA_L40S-12A",
    }
    owners = [(o["kind"], o["name"]) for o in claim["metadata"]["ownerReferences"]]
    assert owners == [("PCIDevice", "n-000026004"), ("VGPUDevice", "n-000026004")]
    assert claim["metadata"]["labels"]["harvesterhci.io/parentSRIOVGPUDevice"] == "n-000026000"
    assert claim["status"]["passthroughEnabled"] is True
    disable(l40s, VF0)
    assert l40s.live() == {}
    assert l40s.store.of("PCIDeviceClaim") == {}
    device = l40s.store.get("PCIDevice", "n-000026004")
    assert key not in device["metadata"]["annotations"]
    assert re.fullmatch(r"nvidia\.com/AD102GL_L40S", device["status"]["resourceName"])


def test_the_claim_is_there_before_the_vgpu_and_gone_after_it(l40s: One) -> None:
    l40s.store.patch("VGPUDevice", "n-000026004", {"spec": {"enabled": True, "vGPUTypeName": "NVIDIA L40S-12A"}})
    l40s.publish()
    assert l40s.live() == {}
    assert list(l40s.store.of("PCIDeviceClaim")) == ["n-000026004"]
    l40s.settle()
    l40s.store.patch("VGPUDevice", "n-000026004", {"spec": {"enabled": False}})
    l40s.publish()
    assert list(l40s.store.of("PCIDeviceClaim")) == ["n-000026004"]
    l40s.settle()
    assert l40s.store.of("PCIDeviceClaim") == {}


def test_the_originals_claim_with_its_finalizer_goes_too(l40s: One) -> None:
    enable(l40s, VF0, "NVIDIA L40S-12A")
    claim = l40s.store.get("PCIDeviceClaim", "n-000026004")
    claim["metadata"]["finalizers"] = ["wrangler.cattle.io/PCIDeviceClaimOnRemove"]
    disable(l40s, VF0)
    assert l40s.store.of("PCIDeviceClaim") == {}


def test_a_claim_goes_although_pcidevices_of_another_node_judges_it(l40s: One, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its webhook: pkg/webhook/pcideviceclaim.go of pcidevices 1.8. It does not judge updates.
    enable(l40s, VF0, "NVIDIA L40S-12A")
    delete = l40s.store.delete

    def judged(kind: str, name: str) -> None:
        owners = l40s.store.get(kind, name)["metadata"].get("ownerReferences", [])
        owned = kind == "PCIDeviceClaim" and any(owner["kind"] == "VGPUDevice" for owner in owners)
        assert not owned, "cannot be deleted as it is owned by VGPUDevice"
        delete(kind, name)

    monkeypatch.setattr(l40s.store, "delete", judged)
    disable(l40s, VF0)
    assert l40s.store.of("PCIDeviceClaim") == {}


def test_a_live_type_of_vendor_vfio_is_adopted_by_name(l40s: One) -> None:
    # A full GPU does not report its name, but the tables contain it.
    l40s.make_by_hand(VF0, 1163)
    l40s.store.delete("VGPUDevice", "n-000026004")
    l40s.settle()
    assert l40s.vgpu(VF0)["spec"]["vGPUTypeName"] == "NVIDIA L40S-12A"
    assert l40s.vgpu(VF0)["spec"]["enabled"] is True
    assert list(l40s.store.of("PCIDeviceClaim")) == ["n-000026004"]


def test_vendor_vfio_made_by_hand_is_left_alone(l40s: One) -> None:
    l40s.make_by_hand(VF1, 1163)
    l40s.settle()
    assert l40s.live() == {VF1: "NVIDIA L40S-12A"}
    assert ready(l40s.vgpu(VF1)) == ("False", "Untracked")
    assert l40s.store.of("PCIDeviceClaim") == {}
    enable(l40s, VF0, "NVIDIA L40S-12Q")
    assert sorted(l40s.live()) == [VF0, VF1]


@pytest.mark.parametrize(("framework", "uuid"), [("mdev", UUID), ("vfio", "")])
def test_a_whole_gpu_on_nvswitch_comes_back_although_a_new_one_is_refused(
    tmp_path: Path, framework: str, uuid: str
) -> None:
    pci = "0000:10:00.0"
    one = One(f"b200:{framework}", tmp_path, "n", pci).settle()
    one.store.patch("SRIOVGPUDevice", "n-000010000", {"metadata": {"annotations": {SKIP_MIG_ANNOTATION: "true"}}})
    one.kubectl("SRIOVGPUDevice", "n-000010000", enabled=True)
    address = one.device(pci)["status"]["vfAddresses"][0]
    enable(one, address, "NVIDIA B200X-180C")
    assert one.live() == {}
    assert ready(one.vgpu(address)) == ("False", "Fabric")
    kind = one.vgpu(address)["status"]["availableTypes"]["NVIDIA B200X-180C"]
    one.make_by_hand(address, int(kind.removeprefix("nvidia-")), uuid)
    assert ready(one.settle().vgpu(address)) == ("True", "Configured")
    one.reboot().settle()
    assert one.live() == {address: "NVIDIA B200X-180C"}


def test_vendor_vfio_returns_after_a_reboot_with_its_claim(l40s: One) -> None:
    enable(l40s, VF0, "NVIDIA L40S-12A")
    uid = l40s.store.get("PCIDeviceClaim", "n-000026004")["metadata"]["uid"]
    l40s.reboot().settle()
    assert l40s.live() == {VF0: "NVIDIA L40S-12A"}
    assert l40s.store.get("PCIDeviceClaim", "n-000026004")["metadata"]["uid"] == uid
