"""Order of checks, codes, MIG mode, sessions, reset and reboot, as in nvml.h, the kernel and captures."""

from __future__ import annotations

import pytest

from system.sim.memory import Memory

MODE = "DeviceGetMigMode 0 -1 -1"


def set_mode(node: Memory, request: int) -> list[int]:
    return node.ask(f"DeviceSetMigMode 0 -1 -1 {request}")


def test_checks_of_a_creation_come_in_the_order_of_the_driver() -> None:
    node = Memory("a100-sxm4-40gb", mig=False)
    plain = node.open(200, privileged=False)
    everything = "DeviceCreateGpuInstanceWithPlacement 0 -1 -1 99 1 1"
    node.control("hold", gpu=0)
    assert node.ask(everything, plain) == [4], "1. permission"
    assert node.ask(everything) == [3], "2. MIG mode"
    node.control("release", gpu=0)
    node.ask("bye", plain)
    assert set_mode(node, 1) == [0, 0]
    node.control("hold", gpu=0)
    assert node.ask(everything) == [3], "3. a profile that this GPU does not have"
    assert node.create(9, (1, 4)) == -2, "a placement outside the list"
    assert node.create(9, (0, 4)) == -19, "5. another process uses the GPU"
    node.control("release", gpu=0)
    assert node.create(9, (0, 4)) == 1
    assert node.create(9, (0, 4)) == -23, "6. occupied"


def test_a_gpu_without_mig() -> None:
    node = Memory("t4")
    for call in (
        "DeviceGetMigMode 0 -1 -1",
        "DeviceSetMigMode 0 -1 -1 1",
        "DeviceCreateGpuInstance 0 -1 -1 19",
        "DeviceGetGpuInstanceProfileInfo 0 -1 -1 0",
        "DeviceGetGpuInstances 0 -1 -1 19",
    ):
        assert node.ask(call) == [3], call
    assert node.ask("DeviceGetMaxMigDeviceCount 0 -1 -1") == [0, 0]


def test_listing_privileges() -> None:
    node = Memory("a100-sxm4-40gb")
    plain = node.open(200, privileged=False)
    assert node.ask("DeviceGetGpuInstanceProfileInfo 0 -1 -1 0", plain)[0] == 0
    for call in ("DeviceGetGpuInstances", "DeviceGetGpuInstancePossiblePlacements"):
        assert node.ask(f"{call} 0 -1 -1 19", plain) == [4]
    assert node.ask("DeviceSetMigMode 0 -1 -1 0", plain) == [4]


@pytest.mark.parametrize(("driver", "known"), [(None, 18), ("535.183.01", 10), ("550.54.14", 10)])
def test_profile_indexes_end_with_an_invalid_argument(driver: str | None, known: int) -> None:
    node = Memory("a100-sxm4-40gb", driver)
    codes = [node.ask(f"DeviceGetGpuInstanceProfileInfo 0 -1 -1 {i}")[0] for i in range(19)]
    assert codes.index(2) == known
    assert [i for i, code in enumerate(codes) if code == 0] == [0, 1, 2, 3, 4, 7, 9]


def test_r535_lists_no_profiles_while_mig_mode_is_off() -> None:
    node = Memory("a30", "535.183.01", mig=False)
    assert node.ask("DeviceGetGpuInstanceProfileInfo 0 -1 -1 0") == [3]
    set_mode(node, 1)
    assert node.ask("DeviceGetGpuInstanceProfileInfo 0 -1 -1 0")[:2] == [0, 14]
    assert Memory("a30", mig=False).ask("DeviceGetGpuInstanceProfileInfo 0 -1 -1 0")[0] == 0


def test_handles_of_what_is_gone_are_invalid_and_unknown_ids_are_not_found() -> None:
    node = Memory("a100-sxm4-40gb")
    gi = node.create(9)
    node.ask(f"GpuInstanceCreateComputeInstance 0 {gi} -1 2")
    assert node.ask(f"ComputeInstanceDestroy 0 {gi} 0") == [0]
    assert node.ask(f"ComputeInstanceGetInfo 0 {gi} 0") == [2]
    assert node.ask(f"DeviceGetUUID 0 {gi} 0") == [2]
    assert node.ask(f"GpuInstanceGetComputeInstanceById 0 {gi} -1 0") == [6]
    assert node.ask(f"GpuInstanceDestroy 0 {gi} -1") == [0]
    assert node.ask(f"GpuInstanceGetInfo 0 {gi} -1") == [2]
    assert node.ask(f"GpuInstanceDestroy 0 {gi} -1") == [2]
    assert node.ask(f"DeviceGetGpuInstanceById 0 -1 -1 {gi}") == [6]


def test_compute_placements() -> None:
    node = Memory("a100-sxm4-40gb")
    gi = node.create(5)
    at = f"GpuInstanceCreateComputeInstanceWithPlacement 0 {gi} -1"
    assert node.ask(f"{at} 1 3 2") == [2], "not in the list"
    assert node.ask(f"{at} 1 1 2") == [0, 0]
    assert node.ask(f"{at} 0 2 1") == [19], "occupied: state in use"
    assert node.ask(f"{at} 0 3 1") == [0, 1]
    assert node.ask(f"GpuInstanceCreateComputeInstance 0 {gi} -1 1") == [23], "no two adjacent slices are free"
    assert node.ask(f"GpuInstanceCreateComputeInstance 0 {gi} -1 0") == [0, 2]
    assert node.ask(f"GpuInstanceGetComputeInstanceRemainingCapacity 0 {gi} -1 0") == [0, 0]
    assert node.ask(f"ComputeInstanceDestroy 0 {gi} 0") == [0]
    assert node.ask(f"GpuInstanceGetComputeInstanceRemainingCapacity 0 {gi} -1 0") == [0, 2]
    assert node.ask(f"GpuInstanceCreateComputeInstance 0 {gi} -1 1") == [0, 0], "the lowest free number"


def test_a_process_holds_its_compute_instance() -> None:
    node = Memory("a100-sxm4-40gb")
    gi = node.create(9)
    node.ask(f"GpuInstanceCreateComputeInstance 0 {gi} -1 2")
    code, _ = node.control("hold", gpu=0, instance=gi, pid=4711, name="train.py")
    assert code == 0
    assert node.ask(f"ComputeInstanceDestroy 0 {gi} 0") == [19]
    assert node.ask(f"GpuInstanceDestroy 0 {gi} -1") == [19]
    assert node.ask("DeviceGetComputeRunningProcesses 0 -1 -1") == [0, 4711, 256 << 20, gi, 0]
    assert node.ask(f"DeviceGetComputeRunningProcesses 0 {gi} 0")[1] == 4711
    assert node.text("SystemGetProcessName 4711") == "train.py"
    assert node.control("destroy", gpu=0, instance=gi)[0] == 19, "not manually either"
    assert node.control("terminate", pid=4711)[0] == 0
    assert node.ask(f"ComputeInstanceDestroy 0 {gi} 0") == [0]


# -- MIG mode


def test_ampere_mode_change_when_idle_is_immediate() -> None:
    node = Memory("a100-sxm4-40gb", mig=False)
    assert set_mode(node, 1) == [0, 0]
    assert node.ask(MODE) == [0, 1, 1]


@pytest.mark.parametrize("what", ["session", "process"])
def test_ampere_mode_change_stays_pending_while_another_client_is_there(what: str) -> None:
    node = Memory("a100-sxm4-40gb", mig=False)
    other = node.open(200) if what == "session" else None
    if other is None:
        node.control("hold", gpu=0)
    assert set_mode(node, 1) == [0, 19]
    assert node.ask(MODE) == [0, 0, 1]
    assert node.control("reset", gpu=0)[0] == 19, "the client refuses the reset as well"
    if other is not None:
        other.close()
    node.control("release", gpu=0)
    node.ask("bye")
    assert node.control("reset", gpu=0)[0] == 0
    node.link = node.open(300)
    assert node.ask(MODE) == [0, 1, 1]


def test_our_own_session_refuses_a_reset() -> None:
    node = Memory("a100-sxm4-40gb")
    assert node.control("reset", gpu=0)[0] == 19
    node.ask("Shutdown")
    assert node.control("reset", gpu=0)[0] == 0
    assert node.ask(MODE) == [1], "shut down: uninitialized"


def test_hopper_needs_no_reset_and_ignores_other_sessions() -> None:
    node = Memory("h100-80gb-hbm3", mig=False)
    node.open(200)
    assert set_mode(node, 1) == [0, 0]
    node.control("hold", gpu=0)
    assert set_mode(node, 0) == [0, 19]


def test_disabling_with_instances_leaves_it_pending() -> None:
    node = Memory("a100-sxm4-40gb")
    gi = node.create(9)
    assert set_mode(node, 0) == [0, 19]
    assert node.ask(MODE) == [0, 1, 0]
    assert node.ask(f"GpuInstanceGetInfo 0 {gi} -1")[0] == 0, "nothing was wiped"
    assert set_mode(node, 1) == [0, 0], "and the request can be withdrawn"


def test_a_gpu_passed_through_cannot_be_reset() -> None:
    node = Memory("a100-sxm4-40gb:guest", mig=False)
    assert node.ask("DeviceGetVirtualizationMode 0 -1 -1") == [0, 1]
    assert set_mode(node, 1) == [0, 16]
    node.ask("bye")
    assert node.control("reset", gpu=0)[0] == 3
    node.control("reboot")
    node.link = node.open(300)
    assert node.ask(MODE) == [0, 1, 1]


@pytest.mark.parametrize(("template", "after"), [("a100-sxm4-40gb", 1), ("h100-80gb-hbm3", 0)])
def test_reboot(template: str, after: int) -> None:
    node = Memory(template)
    gi = node.create(9)
    node.ask(f"GpuInstanceCreateComputeInstance 0 {gi} -1 2")
    node.control("hold", gpu=0, instance=gi)
    boot = node.node.state.boot_id
    assert node.control("reboot")[0] == 0
    assert node.node.state.boot_id != boot
    assert node.ask(MODE) == [1], "every session is gone"
    node.link = node.open(300)
    assert node.ask(MODE) == [0, after, after]
    assert not node.node.gpus[0].state.instances
    assert not node.node.gpus[0].state.processes


def test_a_reset_wipes_instances_and_hopper_forgets_its_mode() -> None:
    for template, mode in (("a100-sxm4-40gb", 1), ("h100-80gb-hbm3", 0)):
        node = Memory(template)
        node.create(9)
        node.ask("bye")
        node.control("reset", gpu=0)
        node.link = node.open(300)
        assert node.ask(MODE) == [0, mode, mode]
        assert not node.node.gpus[0].state.instances


# -- identity


def test_uuids_are_version_5_and_follow_from_gpu_and_ids() -> None:
    node = Memory("a100-sxm4-40gb*2")
    first = []
    for _ in range(2):
        gi = node.create(9)
        node.ask(f"GpuInstanceCreateComputeInstance 0 {gi} -1 2")
        first.append(node.text(f"DeviceGetUUID 0 {gi} 0"))
        node.control("destroy", gpu=0, instance=gi)
    assert first[0] == first[1]
    assert first[0].startswith("MIG-")
    assert first[0][4 + 14] == "5"
    gi = node.create(9, gpu=1)
    node.ask(f"GpuInstanceCreateComputeInstance 1 {gi} -1 2")
    other = node.text(f"DeviceGetUUID 1 {gi} 0")
    assert other != first[0]
    assert node.link.answer(f"DeviceGetHandleByUUID|{other}") == f"0 1 {gi} 0"


def test_a_minor_is_not_an_index_on_a_dgx() -> None:
    node = Memory("dgx-a100")
    minors = [node.ask(f"DeviceGetMinorNumber {i} -1 -1")[1] for i in range(8)]
    assert sorted(minors) == list(range(8))
    assert minors != list(range(8))
    assert [g.state.pci for g in node.node.gpus][::7] == ["0000:07:00.0", "0000:bd:00.0"]


@pytest.mark.parametrize("spelling", ["0000:07:00.0", "00000000:07:00.0", "07:00.0", "0000:07:00"])
def test_gpus_are_found_by_address(spelling: str) -> None:
    node = Memory("dgx-a100")
    assert node.link.answer(f"DeviceGetHandleByPciBusId|{spelling}") == "0 0 -1 -1"
    assert node.link.answer("DeviceGetHandleByPciBusId|0001:07:00.0") == "6"


def test_without_a_session_nothing_is_answered() -> None:
    node = Memory("a100-sxm4-40gb")
    node.ask("bye")
    assert node.ask("DeviceGetCount") == [1]
    assert node.ask("DeviceCreateGpuInstance 0 -1 -1 19") == [1]


@pytest.mark.parametrize(
    "line", ["", "DeviceGetName", "DeviceGetName x", "DeviceGetName 9 -1 -1", "DeviceGetMigMode 0 1 0"]
)
def test_nonsense_is_an_invalid_argument(line: str) -> None:
    assert Memory("a100-sxm4-40gb").ask(line) == [2]


# -- the log


def test_every_call_is_logged_with_its_code() -> None:
    node = Memory("a100-sxm4-40gb")
    node.create(9, (4, 4))
    node.create(9, (4, 4))
    node.ask("DeviceGetName 0 -1 -1")
    node.ask("unimplemented nvmlDeviceGetFanSpeed_v2")
    assert [c["seq"] for c in node.calls] == list(range(1, len(node.calls) + 1))
    made, refused, name, unknown = node.calls[-4:]
    assert (made["call"], made["gpu"]) == ("DeviceCreateGpuInstanceWithPlacement", "0000:01:00.0")
    assert (made["instance"], made["rc"], made["pid"]) == (2, 0, 100)
    assert (made["write"], made["profile_id"], made["placement"]) == (True, 9, "4:4")
    assert (refused["instance"], refused["rc"]) == (None, 23)
    assert (name["call"], name["rc"], "write" in name) == ("DeviceGetName", 0, False)
    assert (unknown["call"], unknown["rc"]) == ("nvmlDeviceGetFanSpeed_v2", 3)
    assert unknown["implemented"] is False


def test_acts_by_hand_are_marked() -> None:
    node = Memory("a100-sxm4-40gb")
    assert node.control("create", gpu=0, profile="3g.20gb")[0] == 0
    writes = [c for c in node.calls if c.get("write")]
    assert [c["call"] for c in writes] == ["DeviceCreateGpuInstance", "GpuInstanceCreateComputeInstance"]
    assert all(c["hand"] for c in writes)
    assert node.control("create", gpu=0, profile="9g.90gb")[0] == 2
    assert node.control("create", gpu=7, profile="3g.20gb")[0] == 2
    assert node.control("dance")[0] == 2


# -- time


@pytest.mark.parametrize(
    ("template", "profile", "seconds"),
    [("a100-sxm4-40gb", 9, 0.20), ("h100-80gb-hbm3", 0, 0.42), ("a30", 14, 0.11), ("rtx-pro-6000", 14, 0.16)],
)
def test_measured_latency(template: str, profile: int, seconds: float) -> None:
    node = Memory(template, latency="measured")
    gi = node.create(profile)
    row = node.node.gpus[0].family_table.family.by_id[profile]
    node.ask(f"GpuInstanceCreateComputeInstance 0 {gi} -1 {row.default_compute.id}")
    assert sum(node.slept) == pytest.approx(seconds)
    node.slept.clear()
    assert node.create(0) == -23
    assert node.slept == [], "a refusal takes no time"


def test_mode_changes_take_their_time() -> None:
    for template, seconds in (("a100-sxm4-40gb", 5.0), ("h100-80gb-hbm3", 2.7)):
        node = Memory(template, latency="measured", mig=False)
        set_mode(node, 1)
        set_mode(node, 1)
        assert node.slept == [seconds], "and a request for the current mode takes none"
