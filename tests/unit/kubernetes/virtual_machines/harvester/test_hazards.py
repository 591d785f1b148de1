"""Hazards for running VMs and for requests, through events on a node and its objects."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aliquot.kubernetes.virtual_machines.harvester.object_changes import changes
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One, message, ready

PCI, NAME = "0000:08:00.0", "n-000008000"
FIRST = "0000:08:00.4"
FINALIZER = "wrangler.cattle.io/PCIDeviceClaimOnRemove"
SKIP = "harvesterhci.io/skip-mig-configuration"


@pytest.fixture
def a2(tmp_path: Path) -> One:
    return One("a2:mdev", tmp_path, "n", PCI).settle()


@pytest.fixture
def a100(tmp_path: Path) -> One:
    one = One("a100-sxm4-40gb:vfio", tmp_path, "n", PCI).settle()
    return one.kubectl("SRIOVGPUDevice", NAME, enabled=True)


def claim(one: One, address: str = PCI, name: str = "", **metadata: object) -> None:
    body = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "PCIDeviceClaim",
        "metadata": {"name": name or one.name_of(address), **metadata},
        "spec": {"address": address, "nodeName": one.name, "userName": "admin"},
    }
    one.store.create("PCIDeviceClaim", body)


def driver(one: One, address: str = PCI) -> str:
    return next(f.driver for f in one.view().functions if f.address == address)


def without_the_gpu(one: One) -> object:
    gpu = one.node.backend.memory.node.gpus.pop()
    one.node.backend.memory.node.files_changed()
    return gpu


# -- names that VMs request


def test_the_resource_of_a_claimed_gpu_keeps_the_name_that_pcidevices_gave_it(a2: One) -> None:
    # pcidevices' pci.ids may be older than ours: VMs request the name with which they were created.
    a2.store.get("PCIDevice", NAME)["status"]["resourceName"] = "nvidia.com/GA107GL_A2"
    claim(a2)
    a2.settle()
    assert a2.store.get("PCIDevice", NAME)["status"]["resourceName"] == "nvidia.com/GA107GL_A2"
    a2.reboot().settle()
    assert a2.store.get("PCIDevice", NAME)["status"]["resourceName"] == "nvidia.com/GA107GL_A2"


def test_another_card_at_the_same_place_does_not_inherit_the_name(a2: One) -> None:
    status = a2.store.get("PCIDevice", NAME)["status"]
    status |= {"resourceName": "nvidia.com/TU104GL_TESLA_T4", "deviceId": "1eb8"}
    claim(a2)
    a2.settle()
    assert a2.store.get("PCIDevice", NAME)["status"]["resourceName"] == "nvidia.com/GA107GL_A2___A16"


# -- objects that are missing for a while


def test_an_object_that_lost_its_label_costs_nothing_that_belongs_to_it(a100: One) -> None:
    # The watch selects by that label: without it, the object looks deleted, and its dependents must wait until that is
    # clear.
    a100.blind = "no pod of the driver"
    a100.reboot().settle()
    objects = msgspec.structs.replace(a100.store.typed(), gpus={})
    found = changes(a100.view(), objects, {})
    assert [c for c in found if c.verb == "delete"] == []


# -- a GPU that is passed through, and is gone


def test_a_claim_outlasts_a_gpu_that_is_gone_for_a_while(a2: One) -> None:
    claim(a2, ownerReferences=[{"apiVersion": "v1", "kind": "PCIDevice", "name": NAME, "uid": "u"}])
    a2.settle()
    without_the_gpu(a2)
    a2.settle()
    assert NAME in a2.store.of("PCIDevice")  # the dependents of the object would be deleted with it
    body = a2.store.get("PCIDeviceClaim", NAME)
    assert ready(body) == ("False", "GpuMissing")
    assert not body["status"].get("passthroughEnabled")


def test_a_claim_on_a_gpu_that_is_gone_can_be_deleted(a2: One) -> None:
    claim(a2)
    a2.settle()
    without_the_gpu(a2)
    a2.settle()
    a2.store.delete("PCIDeviceClaim", NAME)
    a2.settle()
    assert a2.store.of("PCIDeviceClaim") == {}
    assert a2.store.of("PCIDevice") == {}


# -- an object that contradicts itself


def test_a_claim_that_names_another_address_hands_nothing_out(tmp_path: Path) -> None:
    one = One("a2:mdev*2", tmp_path, "n").settle()
    first, second = [f.address for f in one.view().functions if f.gpu]
    claim(one, second, one.name_of(first))
    one.settle()
    assert (driver(one, first), driver(one, second)) == ("nvidia", "nvidia")


# -- MIG


def asking(one: One, counts: dict[int, int]) -> list[JSON]:
    return [{**p, "requested": counts.get(p["id"], 0)} for p in one.mig(PCI)["spec"]["profileSpec"]]


def test_skipping_mig_says_so_at_a_layout_that_is_enabled_and_gone(a100: One) -> None:
    a100.kubectl("MigConfiguration", NAME, enabled=True, profileSpec=asking(a100, {19: 1}))
    (number,) = [i.id for g in a100.node.whole.read().gpus for i in g.instances]
    a100.destroy_by_hand(PCI, number)
    a100.settle()
    a100.mark("SRIOVGPUDevice", NAME, SKIP, "true")
    assert not a100.node.whole.read().gpus[0].mig.enabled
    status, reason = ready(a100.mig(PCI))
    assert (status, reason) == ("False", "Skipped"), message(a100.mig(PCI))


def test_instances_that_no_object_knows_keep_the_functions_on(a100: One) -> None:
    # Objects restored from an earlier time neither request nor know what exists.
    a100.kubectl("MigConfiguration", NAME, enabled=True, profileSpec=asking(a100, {19: 2}))
    for body in a100.store.objects.values():
        body.pop("status", None)
        body["spec"] |= {"enabled": False} if "enabled" in body.get("spec", {}) else {}
    a100.settle()
    assert len(a100.instances()) == 2
    assert ready(a100.device(PCI)) == ("False", "Untracked")
    assert "GPU instance" in message(a100.device(PCI))
    a100.mark("SRIOVGPUDevice", NAME, "aliquot.dev/untracked", "delete")
    assert a100.instances() == []
    assert a100.device(PCI)["status"].get("vfAddresses", []) == []


def test_machines_keep_everything_through_a_change_of_mind_about_mig(a100: One) -> None:
    a100.kubectl("MigConfiguration", NAME, enabled=True, profileSpec=asking(a100, {19: 2}))
    first = a100.device(PCI)["status"]["vGPUDevices"][0]
    kind = next(iter(a100.store.get("VGPUDevice", first)["status"]["availableTypes"]))
    a100.kubectl("VGPUDevice", first, enabled=True, vGPUTypeName=kind)
    a100.start_vm(a100.store.get("VGPUDevice", first)["spec"]["address"])
    before = (a100.live(), a100.instances())
    a100.mark("SRIOVGPUDevice", NAME, SKIP, "true")
    a100.kubectl("MigConfiguration", NAME, enabled=False)
    a100.kubectl("VGPUDevice", first, enabled=False)
    a100.kubectl("SRIOVGPUDevice", NAME, enabled=False)
    assert (a100.live(), a100.instances()) == before
    assert ready(a100.device(PCI)) == ("False", "Held")
    a100.stop_vm()
    a100.settle()
    assert (a100.live(), a100.instances()) == ({}, [])
    assert a100.store.of("VGPUDevice") == {}


def test_another_boot_id_over_a_running_machine_touches_nothing(a100: One, monkeypatch: pytest.MonkeyPatch) -> None:
    # A kernel that was replaced by kexec, or a reset boot id: only existing vGPUs count.
    a100.kubectl("MigConfiguration", NAME, enabled=True, profileSpec=asking(a100, {19: 2}))
    first = a100.device(PCI)["status"]["vGPUDevices"][0]
    kind = next(iter(a100.store.get("VGPUDevice", first)["status"]["availableTypes"]))
    a100.kubectl("VGPUDevice", first, enabled=True, vGPUTypeName=kind)
    a100.start_vm(a100.store.get("VGPUDevice", first)["spec"]["address"])
    before = (a100.live(), a100.instances())
    monkeypatch.setattr(a100.node, "boot", lambda: "boot-7")
    assert not a100.act()
    a100.settle()
    assert (a100.live(), a100.instances()) == before
    assert a100.mig(PCI)["status"]["appliedBoot"] == "boot-7"


# -- messages


def test_a_gpu_that_fell_off_the_bus_is_called_that(a2: One) -> None:
    a2.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    a2.kubectl("VGPUDevice", a2.name_of(FIRST), enabled=True, vGPUTypeName="NVIDIA A2-4Q")
    previous = a2.vgpu(FIRST)["status"]["uuid"]
    a2.control("fault", kind="lost", gpu=PCI)
    a2.settle()
    assert ready(a2.device(PCI)) == ("Unknown", "GpuLost")
    assert ready(a2.vgpu(FIRST)) == ("Unknown", "GpuLost")
    assert a2.vgpu(FIRST)["status"]["uuid"] == previous


def test_an_object_under_another_name_is_not_reported_that_its_gpu_is_gone(a2: One) -> None:
    body = {
        "apiVersion": "devices.harvesterhci.io/v1beta1",
        "kind": "SRIOVGPUDevice",
        "metadata": {"name": "former-000008000"},
        "spec": {"address": PCI, "nodeName": "n", "enabled": True},
    }
    a2.store.create("SRIOVGPUDevice", body)
    a2.settle()
    assert ready(a2.store.get("SRIOVGPUDevice", "former-000008000")) == ("False", "Misnamed")
    assert a2.device(PCI)["status"].get("vfAddresses", []) == []


def test_a_claim_waits_for_instances_of_others(tmp_path: Path) -> None:
    # The GPU was partitioned for containers, which use none of it at present.
    one = One("a100-sxm4-40gb:vfio", tmp_path, "n", PCI).settle()
    one.node.backend.set_mode(PCI, True)
    one.instance_by_hand(9, 0, 4)
    claim(one)
    one.settle()
    assert one.instances() == ["3g.20gb@0"]
    body = one.store.get("PCIDeviceClaim", NAME)
    assert ready(body) == ("False", "Untracked")
    assert "MIG 3g.20gb" in message(body)
    one.mark("PCIDeviceClaim", NAME, "aliquot.dev/untracked", "delete")
    assert driver(one) == "vfio-pci"
