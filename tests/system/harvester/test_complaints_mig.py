"""User reports about MIG on VMs, and why they cannot happen here. Numbers are of public threads."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.admissions import entry, machine
from system.harvester.bench import A2, A100, carry, enabled, give_up, layout, types, writes
from system.harvester.bench import machine_refused as refused
from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready

ONE_G, TWO_G, THREE_G, SEVEN_G = 19, 14, 9, 0
SKIP = "harvesterhci.io/skip-mig-configuration"


@pytest.fixture
def a100(tmp_path: Path) -> One:
    return enabled("a100-sxm4-40gb:vfio", tmp_path, A100)


def first(one: One) -> str:
    return str(one.device(A100)["status"]["vfAddresses"][0])


@pytest.mark.parametrize("counts", [{ONE_G: 2, THREE_G: 1, TWO_G: 1}, {TWO_G: 2, THREE_G: 1}, {15: 2, 5: 1}])
def test_mixed_profiles_stopped_with_exit_23(a100: One, counts: dict[int, int]) -> None:
    """harvester/harvester#11636: small instances first took the place of the big one. Placements are chosen for all
    together.
    """
    layout(a100, A100, counts)
    assert a100.mig(A100)["status"]["status"] == "synced"
    assert len(a100.instances()) == sum(counts.values())


def test_a_layout_that_failed_half_way_left_a_partial_set(a100: One) -> None:
    """harvester/pcidevices, OnMIGChange: the created instances stayed, and the request then counted as met. Here the
    driver refuses the second one, and the first is removed.
    """
    a100.control("fault", kind="fail", call="DeviceCreateGpuInstanceWithPlacement", code=999, nth=2)
    layout(a100, A100, {THREE_G: 1, TWO_G: 1})
    assert a100.instances() == []
    assert ready(a100.mig(A100)) == ("False", "HardwareRefused")
    a100.control("fault", kind="none")
    a100.results.clear()
    a100.settle()
    assert a100.mig(A100)["status"]["status"] == "synced"


def test_out_of_sync_gave_no_reason(a100: One) -> None:
    """harvester/harvester#9529."""
    layout(a100, A100, {ONE_G: 2})
    a100.destroy_by_hand(A100, int(a100.mig(A100)["status"]["profileStatus"][0]["vGPUID"][0]))
    a100.instance_by_hand(THREE_G, 0, 4)
    a100.settle()
    status = a100.mig(A100)["status"]
    assert status["status"] == "out-of-sync"
    assert [text.partition(" (")[0] for text in status["differences"]] == [
        "1 of 2 MIG 1g.5gb is missing",
        "GPU instance 1",
    ]
    assert all(each in status["message"] for each in status["differences"])
    assert "| next: kubectl" in status["message"]


def test_figures_were_stale_until_the_page_was_loaded_again(a100: One) -> None:
    """harvester/harvester#9525: the available count follows each change, also of other tools, without a refresh."""
    rows = {row["id"]: row["available"] for row in a100.mig(A100)["status"]["profileStatus"]}
    assert (rows[ONE_G], rows[SEVEN_G]) == (7, 1)
    a100.instance_by_hand(THREE_G, 0, 4)
    a100.settle()
    rows = {row["id"]: row["available"] for row in a100.mig(A100)["status"]["profileStatus"]}
    assert (rows[ONE_G], rows[SEVEN_G]) == (3, 0)


def test_an_h100_offered_no_time_sliced_types(tmp_path: Path) -> None:
    """harvester/harvester#11133: MIG was enabled without a request. An annotation at the GPU prevents it."""
    one = One("h100-pcie:vfio", tmp_path, "n1", A100).settle()
    one.store.patch("SRIOVGPUDevice", one.name_of(A100), {"metadata": {"annotations": {SKIP: "true"}}})
    one.kubectl("SRIOVGPUDevice", one.name_of(A100), enabled=True)
    assert "NVIDIA H100-20C" in types(one, first(one))
    assert one.store.of("MigConfiguration") == {}
    assert not one.node.whole.read().gpus[0].mig.enabled


def test_mig_backed_vgpus_needed_another_manager_and_a_restart(a100: One) -> None:
    """NVIDIA/gpu-operator#1945, kubevirt/kubevirt#10575, NVIDIA/kubevirt-gpu-device-plugin#102."""
    layout(a100, A100, {THREE_G: 1, ONE_G: 1})
    assert {name.rpartition("-")[0] for name in types(a100, first(a100))} >= {"GRID A100X-3", "GRID A100X-1"}
    carry(a100, first(a100), "GRID A100X-3-20C")
    assert a100.live() == {first(a100): "GRID A100X-3-20C"}


@pytest.mark.parametrize("kernel", ["mdev", "vfio"])
def test_mode_functions_instances_and_vgpus_were_gone_after_a_reboot(tmp_path: Path, kernel: str) -> None:
    """NVIDIA/gpu-operator#2600, cozystack/ansible-cozystack#70: the state lost in a reboot is created again, in one
    order.
    """
    one = enabled(f"a100-sxm4-40gb:{kernel}", tmp_path, A100)
    layout(one, A100, {THREE_G: 1, TWO_G: 1})
    carry(one, first(one), "GRID A100X-3-20C")
    instances, uuid = one.instances(), one.vgpu(first(one))["status"]["uuid"]
    one.reboot()
    assert (one.instances(), one.live()) == ([], {})
    one.settle()
    assert (one.instances(), one.live()) == (instances, {first(one): "GRID A100X-3-20C"})
    assert one.vgpu(first(one))["status"]["uuid"] == uuid
    assert one.mig(A100)["status"]["status"] == "synced"


def test_no_sys_bus_mdev_on_a_node_gave_no_message(tmp_path: Path) -> None:
    """NVIDIA/gpu-operator#591, #554: the ordinary driver has no virtual functions. The object gives the reason."""
    one = One("a2", tmp_path, "n1", A2).settle()
    one.kubectl("SRIOVGPUDevice", one.name_of(A2), enabled=True)
    status, reason = ready(one.device(A2))
    assert (status, reason.isalnum()) == ("False", True)
    assert "vGPU host driver" in message(one.device(A2)), message(one.device(A2))


def test_mig_commands_ran_on_the_wrong_node(tmp_path: Path) -> None:
    """harvester/pcidevices, MIG handler: each agent partitioned the GPUs of other nodes that had the same address."""
    mine, other = (enabled("a100-sxm4-40gb:vfio", tmp_path / name, A100, name) for name in ("n1", "n2"))
    for (kind, name), body in list(other.store.objects.items()):
        mine.store.objects[kind, name] = body
    row = {"id": THREE_G, "name": "MIG 3g.20gb", "requested": 1}
    mine.store.patch("MigConfiguration", other.name_of(A100), {"spec": {"enabled": True, "profileSpec": [row]}})
    calls = writes(mine)
    mine.settle()
    assert (mine.instances(), writes(mine)) == ([], calls)


def test_a_running_vgpu_was_lost_when_its_layout_was_disabled(a100: One) -> None:
    """NVIDIA/gpu-operator#1187: a config was changed while VMs ran."""
    layout(a100, A100, {THREE_G: 1})
    carry(a100, first(a100), "GRID A100X-3-20C")
    a100.start_vm(first(a100))
    give_up(a100, first(a100))
    a100.kubectl("MigConfiguration", a100.name_of(A100), enabled=False)
    assert a100.live() == {first(a100): "GRID A100X-3-20C"}
    assert ready(a100.vgpu(first(a100))) == ("False", "Held")
    a100.stop_vm()
    a100.settle()
    assert (a100.live(), a100.instances()) == ({}, [])


def test_several_mig_backed_vgpus_in_one_machine_did_not_start(a100: One) -> None:
    """NVIDIA's release notes: a VM can have only one MIG-backed vGPU. The webhook refuses the VM when it is written,
    not at boot.
    """
    layout(a100, A100, {ONE_G: 2})
    for address in a100.device(A100)["status"]["vfAddresses"][:2]:
        carry(a100, address, "GRID A100X-1-5C")
    made = [a100.vgpu(address) for address in a100.device(A100)["status"]["vfAddresses"][:2]]
    resource = "nvidia.com/GRID_A100X-1-5C"
    two = machine("vm", entry("a", resource), entry("b", resource))
    assert "must be the only vGPU of a VM" in refused(two, vgpus=made)
