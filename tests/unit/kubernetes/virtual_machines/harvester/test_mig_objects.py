"""MigConfigurations: the layout of a GPU, compared with the request."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.kubernetes.virtual_machines.harvester.cluster_of_one import JSON, One, message, ready

PCI, NAME = "0000:04:00.0", "n-000004000"
SKIP = "harvesterhci.io/skip-mig-configuration"
HEAL, UNTRACKED = "aliquot.dev/self-heal", "aliquot.dev/untracked"


@pytest.fixture
def a100(tmp_path: Path) -> One:
    """Build an A100 with its virtual functions and MIG mode on."""
    one = One("a100-sxm4-40gb:vfio", tmp_path, "n", PCI).settle()
    return one.kubectl("SRIOVGPUDevice", NAME, enabled=True)


def asking(one: One, counts: dict[int, int]) -> list[JSON]:
    return [{**p, "requested": counts.get(p["id"], 0)} for p in one.mig(PCI)["spec"]["profileSpec"]]


def cut(one: One, counts: dict[int, int]) -> One:
    return one.kubectl("MigConfiguration", NAME, enabled=True, profileSpec=asking(one, counts))


def give_up(one: One) -> One:
    return one.kubectl("MigConfiguration", NAME, enabled=False)


def state(one: One) -> str:
    return str(one.mig(PCI)["status"].get("status", ""))


def ids(one: One) -> dict[int, list[str]]:
    return {p["id"]: p["vGPUID"] for p in one.mig(PCI)["status"]["profileStatus"] if "vGPUID" in p}


def differences(one: One) -> list[str]:
    return list(one.mig(PCI)["status"].get("differences", []))


def vgpu(one: One, number: int) -> str:
    return str(one.device(PCI)["status"]["vGPUDevices"][number])


# -- from the request to the GPU and back


def test_a_gpu_is_cut_and_made_whole_again(a100: One) -> None:
    cut(a100, {9: 1, 14: 1, 19: 1})
    assert sorted(a100.instances()) == ["1g.5gb@2", "2g.10gb@0", "3g.20gb@4"]
    assert state(a100) == "synced"
    assert ready(a100.mig(PCI)) == ("True", "Synced")
    assert ready(a100.mig(PCI), "Synced") == ("True", "Synced")
    assert a100.mig(PCI)["status"]["appliedBoot"] == "boot-1"
    give_up(a100)
    assert a100.instances() == []
    assert state(a100) == "disabled"
    assert ids(a100) == {}
    assert "appliedBoot" not in a100.mig(PCI)["status"]


@pytest.mark.parametrize("counts", [{19: 2, 9: 1, 14: 1}, {14: 2, 9: 1}, {15: 2, 5: 1}, {19: 3, 5: 1}, {0: 1}])
def test_mixed_profiles_do_not_depend_on_their_order(a100: One, counts: dict[int, int]) -> None:
    # harvester/harvester#11636: creation stopped with exit 23, depending on the order.
    cut(a100, counts)
    assert state(a100) == "synced"
    assert {i: len(v) for i, v in ids(a100).items()} == counts


def test_a_layout_that_cannot_be_says_why_and_makes_nothing(a100: One) -> None:
    cut(a100, {9: 2, 19: 1})
    assert a100.instances() == []
    assert state(a100) == ""
    assert ready(a100.mig(PCI)) == ("False", "Placement")
    assert "NVIDIA A100-SXM4-40GB cannot hold 3g.20gb:2,1g.5gb:1" in message(a100.mig(PCI))
    assert a100.mig(PCI)["status"]["message"] == message(a100.mig(PCI))
    assert differences(a100) == ["1 of 1 MIG 1g.5gb is missing", "2 of 2 MIG 3g.20gb are missing"]
    # The user can withdraw the request, and another one is executed.
    give_up(a100)
    cut(a100, {9: 2})
    assert state(a100) == "synced"


def test_a_profile_that_the_gpu_has_not(a100: One) -> None:
    spec = [*asking(a100, {}), {"id": 47, "name": "MIG 1g.24gb+gfx", "requested": 1}]
    a100.kubectl("MigConfiguration", NAME, enabled=True, profileSpec=spec)
    assert ready(a100.mig(PCI)) == ("False", "UnknownProfile")
    assert "MIG 1g.24gb+gfx (id 47)" in message(a100.mig(PCI))
    assert differences(a100) == ["1 of 1 MIG 1g.24gb+gfx is missing"]


def test_an_impossible_layout_hinders_no_vgpu(a100: One) -> None:
    cut(a100, {19: 2})
    a100.kubectl("VGPUDevice", vgpu(a100, 0), enabled=True, vGPUTypeName="GRID A100X-1-5C")
    a100.store.patch("MigConfiguration", NAME, {"spec": {"profileSpec": asking(a100, {19: 8})}})
    a100.settle()
    a100.kubectl("VGPUDevice", vgpu(a100, 1), enabled=True, vGPUTypeName="GRID A100X-1-5C")
    assert len(a100.live()) == 2
    assert ready(a100.mig(PCI))[0] == "False"


def test_what_exists_at_first_sight_is_the_request(tmp_path: Path) -> None:
    # Adoption: the object is enabled, requests the existing layout, and is synced without any change.
    one = One("a100-sxm4-40gb:vfio", tmp_path, "n", PCI).settle()
    one.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    one.instance_by_hand(9, 4, 4)
    one.store.objects.clear()
    calls = len(one.node.backend.memory.calls)
    one.settle()
    body = one.mig(PCI)
    assert body["spec"]["enabled"] is True
    assert {p["id"]: p["requested"] for p in body["spec"]["profileSpec"] if p["requested"]} == {9: 1}
    assert state(one) == "synced"
    assert not [c for c in one.node.backend.memory.calls[calls:] if c.get("write")]


# -- drift


def test_an_instance_that_was_removed_is_out_of_sync_and_nothing_is_touched(a100: One) -> None:
    cut(a100, {19: 3})
    gone = int(ids(a100)[19][0])
    a100.destroy_by_hand(PCI, gone)
    a100.settle()
    assert state(a100) == "out-of-sync"
    assert differences(a100) == ["1 of 3 MIG 1g.5gb is missing"]
    assert "1 of 3 MIG 1g.5gb is missing" in a100.mig(PCI)["status"]["message"]
    assert ready(a100.mig(PCI), "Synced") == ("False", "OutOfSync")
    assert len(a100.instances()) == 2
    # The user's guide describes this: disable and enable.
    give_up(a100)
    assert a100.instances() == []
    cut(a100, {19: 3})
    assert state(a100) == "synced"


def test_disable_and_enable_at_once_rebuild_as_well(a100: One) -> None:
    # Both patches come between two observations: the agent reads an enabled object both times.
    cut(a100, {19: 3})
    a100.destroy_by_hand(PCI, int(ids(a100)[19][0]))
    a100.settle()
    a100.store.patch("MigConfiguration", NAME, {"spec": {"enabled": False}})
    a100.store.patch("MigConfiguration", NAME, {"spec": {"enabled": True}})
    a100.settle()
    assert state(a100) == "synced"
    assert len(a100.instances()) == 3


def test_a_foreign_instance_is_listed_and_outlives_the_object(a100: One) -> None:
    cut(a100, {19: 1})
    made = a100.instance_by_hand(9, 0, 4)
    a100.settle()
    assert state(a100) == "out-of-sync"
    assert differences(a100) == [f"GPU instance {made} (MIG 3g.20gb at 0:4) was not requested"]
    give_up(a100)
    assert a100.instances() == ["3g.20gb@0"]
    assert state(a100) == "disabled"
    assert "was not created through this object" in a100.mig(PCI)["status"]["message"]
    assert ids(a100) == {}


def test_what_is_not_ours_stays_where_it_is_when_a_request_is_applied(a100: One) -> None:
    made = a100.instance_by_hand(19, 2, 1)
    a100.settle()
    cut(a100, {9: 1})
    assert "1g.5gb@2" in a100.instances()
    assert state(a100) == "out-of-sync"
    assert ids(a100) == {9: ["2"]}
    assert differences(a100) == [f"GPU instance {made} (MIG 1g.5gb at 2:1) was not requested"]
    # The message contains the command that resolves it.
    assert f"{UNTRACKED}=delete (to destroy what was not requested), then kubectl patch" in message(a100.mig(PCI))
    a100.mark("MigConfiguration", NAME, UNTRACKED, "delete")
    give_up(a100)
    assert a100.instances() == []
    cut(a100, {9: 1})
    assert state(a100) == "synced"


def test_a_request_that_does_not_fit_beside_what_is_not_ours_names_it(a100: One) -> None:
    a100.instance_by_hand(19, 2, 1)
    a100.settle()
    cut(a100, {0: 1})
    assert a100.instances() == ["1g.5gb@2"]
    assert ready(a100.mig(PCI))[0] == "False"
    assert "(MIG 1g.5gb at 2:1)" in message(a100.mig(PCI))
    assert f"{UNTRACKED}=delete" in message(a100.mig(PCI))
    assert state(a100) == ""
    a100.mark("MigConfiguration", NAME, UNTRACKED, "delete")
    assert a100.instances() == ["7g.40gb@0"]
    assert state(a100) == "synced"


def test_healing_is_opt_in(a100: One) -> None:
    cut(a100, {19: 3})
    a100.mark("MigConfiguration", NAME, HEAL, "true")
    a100.destroy_by_hand(PCI, int(ids(a100)[19][0]))
    a100.publish()
    assert state(a100) == "out-of-sync", "it is reported, and then corrected"
    a100.settle()
    assert state(a100) == "synced"
    assert len(a100.instances()) == 3
    a100.instance_by_hand(9, 0, 4)
    a100.settle()
    assert state(a100) == "out-of-sync"
    assert "3g.20gb@0" in a100.instances(), (
        "instances of other programs are not destroyed without a request, with or without healing"
    )


def test_a_partial_set_that_a_crash_left_is_finished(a100: One) -> None:
    # The original never continued: if some instances existed, it verified instead of creating.
    a100.store.patch("MigConfiguration", NAME, {"spec": {"enabled": True, "profileSpec": asking(a100, {19: 3})}})
    a100.instance_by_hand(19, 0, 1)
    a100.settle()
    assert state(a100) == "synced"
    assert len(a100.instances()) == 3


# -- in use


def test_disable_waits_for_enabled_vgpus_and_names_them(a100: One) -> None:
    cut(a100, {19: 2})
    name = vgpu(a100, 0)
    a100.kubectl("VGPUDevice", name, enabled=True, vGPUTypeName="GRID A100X-1-5C")
    give_up(a100)
    assert ready(a100.mig(PCI)) == ("False", "VgpuEnabled")
    assert name in message(a100.mig(PCI))
    assert len(a100.instances()) == 2
    assert state(a100) == "synced"
    a100.kubectl("VGPUDevice", name, enabled=False)
    assert a100.instances() == []
    assert state(a100) == "disabled"


def test_disable_is_pending_while_our_own_vgpu_is_being_destroyed(a100: One) -> None:
    # It was Held, with a warning event, by what the agent itself removed a second later.
    cut(a100, {19: 2})
    a100.kubectl("VGPUDevice", vgpu(a100, 0), enabled=True, vGPUTypeName="GRID A100X-1-5C")
    a100.store.patch("VGPUDevice", vgpu(a100, 0), {"spec": {"enabled": False}})
    a100.store.patch("MigConfiguration", NAME, {"spec": {"enabled": False}})
    a100.publish()
    assert ready(a100.mig(PCI)) == ("False", "Pending")
    a100.settle()
    assert (a100.instances(), state(a100)) == ([], "disabled")


def test_disable_is_held_by_a_vgpu_that_is_not_ours(a100: One) -> None:
    cut(a100, {19: 2})
    kind = next(iter(a100.store.get("VGPUDevice", vgpu(a100, 0))["status"]["availableTypes"].values()))
    address = a100.store.get("VGPUDevice", vgpu(a100, 0))["spec"]["address"]
    a100.make_by_hand(address, int(kind))
    a100.settle()
    give_up(a100)
    assert ready(a100.mig(PCI)) == ("False", "Held")
    assert len(a100.instances()) == 2


def test_disable_waits_for_a_process_on_an_instance(a100: One) -> None:
    cut(a100, {19: 2})
    a100.control("hold", gpu=PCI, instance=ids(a100)[19][0], pid=4711)
    give_up(a100)
    assert ready(a100.mig(PCI)) == ("False", "Held")
    assert "4711" in message(a100.mig(PCI))
    assert len(a100.instances()) == 2
    a100.control("release", gpu=PCI, instance=ids(a100)[19][0])
    a100.settle()
    assert a100.instances() == []


def test_vgpus_in_instances_and_what_is_left(a100: One) -> None:
    cut(a100, {9: 1, 19: 2})
    offered = a100.store.get("VGPUDevice", vgpu(a100, 0))["status"]["availableTypes"]
    assert set(offered) == {"GRID A100X-1-5C", "GRID A100X-3-20C"}
    a100.kubectl("VGPUDevice", vgpu(a100, 0), enabled=True, vGPUTypeName="GRID A100X-3-20C")
    assert set(a100.store.get("VGPUDevice", vgpu(a100, 1))["status"]["availableTypes"]) == {"GRID A100X-1-5C"}
    a100.kubectl("VGPUDevice", vgpu(a100, 1), enabled=True, vGPUTypeName="GRID A100X-3-20C")
    assert ready(a100.store.get("VGPUDevice", vgpu(a100, 1))) == ("False", "NoInstance")


# -- reboot, switching


def test_a_reboot_is_replayed_in_the_right_order(a100: One) -> None:
    cut(a100, {9: 1, 19: 2})
    for n, kind in enumerate(("GRID A100X-3-20C", "GRID A100X-1-5C")):
        a100.kubectl("VGPUDevice", vgpu(a100, n), enabled=True, vGPUTypeName=kind)
    before = sorted(a100.instances()), a100.live()
    a100.reboot()
    assert a100.instances() == []
    a100.publish()
    assert state(a100) == "", "instances lost in the reboot are not out of sync"
    a100.settle()
    assert (sorted(a100.instances()), a100.live()) == before
    assert state(a100) == "synced"
    assert a100.mig(PCI)["status"]["appliedBoot"] == "boot-2"


def test_functions_that_were_switched_on_after_the_boot_do_not_hide_the_loss(a100: One) -> None:
    # A service of the host was faster than the agent: functions and MIG mode are on, but the instances are missing.
    cut(a100, {19: 2})
    a100.reboot()
    a100.functions_by_hand(True)
    assert a100.node.whole.read().gpus[0].mig.enabled
    a100.settle()
    assert len(a100.instances()) == 2
    assert state(a100) == "synced"


def test_functions_switched_by_hand_are_a_reboot_in_small(a100: One) -> None:
    cut(a100, {19: 2})
    a100.functions_by_hand(False)
    a100.settle()
    assert len(a100.instances()) == 2
    assert state(a100) == "synced"


def test_functions_off_take_the_object_along(a100: One) -> None:
    cut(a100, {19: 2})
    a100.kubectl("SRIOVGPUDevice", NAME, enabled=False)
    assert a100.instances() == []
    assert a100.store.of("MigConfiguration") == {}


# -- time-sliced by choice


def test_skipping_mig_leaves_the_gpu_time_sliced(tmp_path: Path) -> None:
    # harvester/harvester#11133: H100 boards offered no time-sliced types, because MIG was enabled without a request.
    one = One("h100-pcie:vfio", tmp_path, "n", PCI).settle()
    one.store.patch("SRIOVGPUDevice", NAME, {"metadata": {"annotations": {SKIP: "true"}}})
    one.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    assert one.store.of("MigConfiguration") == {}
    offered = one.store.get("VGPUDevice", vgpu(one, 0))["status"]["availableTypes"]
    assert any("-20C" in name and "-2-20C" not in name for name in offered)
    assert ready(one.device(PCI)) == ("True", "Enabled")
    assert message(one.device(PCI)) == f"20 virtual functions, MIG mode off (requested by {SKIP})"
    one.reboot().settle()
    assert not one.node.whole.read().gpus[0].mig.enabled
    assert one.store.of("MigConfiguration") == {}
    assert ready(one.device(PCI)) == ("True", "Enabled")


def test_skipping_mig_later_makes_an_empty_gpu_time_sliced(a100: One) -> None:
    a100.mark("SRIOVGPUDevice", NAME, SKIP, "true")
    assert not a100.node.whole.read().gpus[0].mig.enabled
    assert a100.store.of("MigConfiguration") == {}
    a100.mark("SRIOVGPUDevice", NAME, SKIP, None)
    assert a100.node.whole.read().gpus[0].mig.enabled
    assert len(a100.store.of("MigConfiguration")) == 1


def test_skipping_mig_leaves_instances_alone(a100: One) -> None:
    cut(a100, {19: 2})
    a100.mark("SRIOVGPUDevice", NAME, SKIP, "true")
    assert len(a100.instances()) == 2
    assert ready(a100.device(PCI)) == ("False", "HasInstances")
    give_up(a100)
    assert a100.instances() == []
    assert not a100.node.whole.read().gpus[0].mig.enabled
    assert a100.store.of("MigConfiguration") == {}


def test_living_time_sliced_vgpus_are_not_lost_to_mig_mode(tmp_path: Path) -> None:
    # The objects of a cluster from before MIG support have no annotation.
    one = One("a100-sxm4-40gb:vfio", tmp_path, "n", PCI)
    one.functions_by_hand(True)
    address = one.view().functions[0].virtual[0]
    one.make_by_hand(address, one_type(one, address))
    one.settle()
    assert len(one.live()) == 1
    assert not one.node.whole.read().gpus[0].mig.enabled
    assert one.store.of("MigConfiguration") == {}
    assert ready(one.device(PCI)) == ("True", "Enabled")
    before = one.live()
    one.reboot().settle()
    assert one.live() == before


def one_type(one: One, address: str) -> int:
    """Return a type that a free function offers."""
    text = one.node.files.read(f"/sys/bus/pci/devices/{address}/nvidia/creatable_vgpu_types")
    return int(text.splitlines()[1].split(":")[0])


# -- take-over


def test_the_originals_synced_object_is_judged_and_not_applied(a100: One) -> None:
    # It has no appliedBoot: existing instances are from this boot, and missing ones were missing before our agent
    # started.
    cut(a100, {19: 3})
    del a100.mig(PCI)["status"]["appliedBoot"]
    del a100.mig(PCI)["status"]["observedGeneration"]
    a100.destroy_by_hand(PCI, int(ids(a100)[19][0]))
    a100.settle()
    assert state(a100) == "out-of-sync"
    assert len(a100.instances()) == 2
    a100.reboot().settle()
    assert state(a100) == "synced"


def test_no_driver_leaves_what_is_known(a100: One) -> None:
    cut(a100, {19: 2})
    before = {k: v for k, v in a100.mig(PCI)["status"].items() if k != "conditions"}
    a100.blind = "no pod of the driver"
    a100.settle()
    assert ready(a100.mig(PCI)) == ("Unknown", "DriverPodNotReady")
    assert {k: v for k, v in a100.mig(PCI)["status"].items() if k != "conditions"} == before
