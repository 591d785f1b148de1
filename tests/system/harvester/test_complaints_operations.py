"""User reports about running clusters: reboots, load, failures, changed requests. Numbers are of public threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from aliquot.kubernetes.virtual_machines.harvester.device_offer import mdev_functions, offer
from system.harvester.bench import A2, L40S, carry, enabled, give_up, types, writes
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready

TYPE, Q = "NVIDIA A2-4Q", "nvidia.com/NVIDIA_A2-4Q"
ONE, TWO, TEN = "0000:08:00.4", "0000:08:00.5", "0000:08:01.6"
FRAMEWORKS = pytest.mark.parametrize("kernel", ["mdev", "vfio"])


@pytest.fixture
def a2(tmp_path: Path) -> One:
    return enabled("a2:mdev", tmp_path, A2)


def healthy(one: One, faulty: frozenset[str] = frozenset()) -> dict[str, int]:
    groups = dict.fromkeys(mdev_functions(one.view().inventory), 7)
    found = offer(one.view(), one.store.typed(), groups, faulty)
    return {each.name: sum(d.healthy for d in each.devices) for each in found.resources}


@FRAMEWORKS
def test_capacity_was_zero_after_a_power_loss(tmp_path: Path, kernel: str) -> None:
    """harvester/harvester#3126, #5957, #6892: the vGPUs come back in the same functions, with the same UUIDs, and
    without an extra one.
    """
    one = enabled(f"a2:{kernel}", tmp_path, A2)
    carry(one, ONE, TYPE)
    carry(one, TEN, TYPE)
    uuids = [one.vgpu(address)["status"]["uuid"] for address in (ONE, TEN)]
    one.reboot()
    assert sum(healthy(one).values()) == 0
    one.settle()
    assert one.live() == {ONE: TYPE, TEN: TYPE}
    assert [one.vgpu(address)["status"]["uuid"] for address in (ONE, TEN)] == uuids
    assert healthy(one) == {Q: 2}


def test_the_uuid_was_another_after_each_reboot(tmp_path: Path) -> None:
    """harvester/pcidevices: a random UUID was generated each time, so recorded ones were wrong. A UUID that pcidevices
    generated is kept as well.
    """
    uuid = "11111111-2222-4333-8444-555555555555"
    one = One("a2:mdev", tmp_path, "n1", A2)
    one.functions_by_hand(True)
    one.make_by_hand(ONE, 746, uuid)
    one.settle()
    one.reboot().settle()
    assert [v.uuid for v in one.node.whole.read().gpus[0].vgpus] == [uuid]
    assert one.vgpu(ONE)["status"]["uuid"] == uuid


@FRAMEWORKS
def test_a_vgpu_that_a_reboot_had_taken_could_not_be_disabled(tmp_path: Path, kernel: str) -> None:
    """harvester/harvester#7002: nothing could be removed, and the object could not show that."""
    one = carry(enabled(f"a2:{kernel}", tmp_path, A2), ONE, TYPE)
    one.reboot()
    give_up(one, ONE)
    assert one.live() == {}
    assert ready(one.vgpu(ONE)) == ("True", "Disabled")
    assert one.store.of("PCIDeviceClaim") == {}


def test_a_type_that_was_removed_and_requested_again_was_not_made(a2: One) -> None:
    """kubevirt/kubevirt#8425."""
    for _ in range(3):
        carry(a2, ONE, TYPE)
        assert a2.live() == {ONE: TYPE}
        give_up(a2, ONE)
        assert a2.live() == {}


@FRAMEWORKS
def test_an_object_that_was_made_again_destroyed_a_running_vgpu(tmp_path: Path, kernel: str) -> None:
    """harvester/pcidevices (vendor VFIO): a VGPUDevice whose function held a type got ``enabled: false``, and the next
    pass removed the vGPU of a running VM.
    """
    one = carry(enabled(f"a2:{kernel}", tmp_path, A2), ONE, TYPE)
    device = one.vgpu(ONE)["status"]["uuid"] if kernel == "mdev" else ONE
    calls = writes(one)
    for running in (False, True):
        if running:
            one.start_vm(device)
        one.store.delete("VGPUDevice", one.name_of(ONE))
        one.act()
        assert (one.live(), writes(one)) == ({ONE: TYPE}, calls), "not before it has an object again either"
        one.settle()
        assert (one.live(), writes(one)) == ({ONE: TYPE}, calls)
    assert one.vgpu(ONE)["spec"] | {"enabled": True, "vGPUTypeName": TYPE} == one.vgpu(ONE)["spec"]


def test_a_failure_left_a_claim_without_a_vgpu(tmp_path: Path) -> None:
    """harvester/pcidevices (vendor VFIO): the claim was created first, and stayed if the type was not written."""
    one = enabled("l40s:vfio", tmp_path, L40S)
    first = one.device(L40S)["status"]["vfAddresses"][0]
    one.control("fault", kind="fail", call="SysfsWrite", path="current_vgpu_type", code=5, calls=100)
    carry(one, first, "NVIDIA L40S-12Q")
    assert one.live() == {}
    assert ready(one.vgpu(first))[0] == "False"
    give_up(one, first)
    assert one.store.of("PCIDeviceClaim") == {}


def test_eight_gpus_kept_a_processor_busy(tmp_path: Path) -> None:
    """harvester/harvester#8653: an idle agent writes nothing, to no API server and to no GPU."""
    one = One("h200:vfio*8", tmp_path, "n1").settle()
    assert len(one.store.of("SRIOVGPUDevice")) == 8
    written, calls = len(one.store.written), writes(one)
    for _ in range(5):
        assert one.publish() == 0
        assert not one.act()
    assert (len(one.store.written), writes(one)) == (written, calls)


def test_a_gpu_that_fell_ill_was_given_to_machines(a2: One) -> None:
    """NVIDIA/kubevirt-gpu-device-plugin#97: health was not checked. The GPU is shown, and not allocated."""
    carry(a2, ONE, TYPE)
    uuid = a2.node.whole.read().gpus[0].uuid
    assert healthy(a2) == {Q: 1}
    assert healthy(a2, frozenset({uuid})) == {Q: 0}


def test_one_card_that_failed_stopped_all_others(tmp_path: Path) -> None:
    """harvester/pcidevices: the whole pass over a node ended with the first error."""
    one = One("a2:mdev*2", tmp_path, "n1").settle()
    bad, good = sorted(body["spec"]["address"] for body in one.store.of("SRIOVGPUDevice").values())
    one.control("fault", kind="unbind-lock", gpu=bad, calls=1000)
    one.store.patch("SRIOVGPUDevice", one.name_of(bad), {"spec": {"enabled": True}})
    one.kubectl("SRIOVGPUDevice", one.name_of(good), enabled=True)
    assert ready(one.device(bad))[0] == "False"
    assert ready(one.device(good)) == ("True", "Enabled")
    assert len(one.store.of("VGPUDevice")) == 16


def test_a_changed_request_took_the_vgpu_from_under_a_machine(a2: One) -> None:
    """NVIDIA/gpu-operator#1187: a config change while VMs run. It waits, and names the holders."""
    carry(a2, ONE, TYPE)
    a2.start_vm(a2.vgpu(ONE)["status"]["uuid"])
    give_up(a2, ONE)
    assert a2.live() == {ONE: TYPE}
    assert ready(a2.vgpu(ONE)) == ("False", "Held")
    assert "guest" in message(a2.vgpu(ONE))
    carry(a2, TWO, TYPE)
    assert a2.live() == {ONE: TYPE, TWO: TYPE}, "siblings are not held up"


def test_enabling_again_wiped_what_was_there(a2: One) -> None:
    """Effects of each ``sriov-manage -e`` run (design notes of several tools): it is not run if the functions exist."""
    carry(a2, ONE, TYPE)
    calls = writes(a2)
    a2.store.patch("SRIOVGPUDevice", a2.name_of(A2), {"metadata": {"labels": {"touched": "yes"}}})
    a2.store.patch("SRIOVGPUDevice", a2.name_of(A2), {"spec": {"enabled": True}})
    a2.settle()
    assert (a2.live(), writes(a2)) == ({ONE: TYPE}, calls)


def test_the_name_of_a_type_could_not_be_read_from_a_full_card(tmp_path: Path) -> None:
    """harvester/pcidevices (vendor VFIO): the kernel lists what can still be created, and on a full card nothing."""
    one = enabled("a2:vfio", tmp_path, A2)
    for address in one.device(A2)["status"]["vfAddresses"][:4]:
        carry(one, address, TYPE)
    one.store.objects = {key: body for key, body in one.store.objects.items() if key[0] == "SRIOVGPUDevice"}
    one.settle()
    assert (
        sorted(body["spec"]["vGPUTypeName"] for body in one.store.of("VGPUDevice").values()) == [""] * 12 + [TYPE] * 4
    )
    assert types(one, TWO) == set()
