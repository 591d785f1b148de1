"""Interaction between the kernel's side and NVML's side of a simulated GPU."""

from __future__ import annotations

import pytest

from system.sim.kernel_setup import Kernel

IN_USE, NOT_SUPPORTED, INVALID = 19, 3, 2
GET, SET = "DeviceGetVgpuHeterogeneousMode 0 -1 -1", "DeviceSetVgpuHeterogeneousMode 0 -1 -1"


def nvml(node: Kernel, line: str) -> list[int]:
    """Make a call in a separate session."""
    link = node.open(7)
    try:
        return node.ask(line, link)
    finally:
        link.close()


def with_instances(template: str) -> Kernel:
    """Return a node whose GPU has MIG mode enabled, functions, and two small instances."""
    node = Kernel(template)
    node.gpu.state.mig = node.gpu.state.pending = True
    assert node.manage() == 0
    small = node.gpu.profiles[0].id
    for _ in range(2):
        assert nvml(node, f"DeviceCreateGpuInstance 0 -1 -1 {small}")[0] == 0
    return node


@pytest.mark.parametrize("action", ["-e", "-d"])
def test_switching_functions_wipes_instances_vgpus_and_mixed_size_mode(action: str) -> None:
    node = with_instances("a30:mdev")
    assert node.make(node.vfs()[0], 689) == 0
    assert node.manage(action) == 0
    state = node.gpu.state
    assert (state.instances, state.vgpus, state.mig) == ([], [], True), "MIG mode stays"
    state.mig = state.pending = False
    assert node.manage("-e") == 0
    assert nvml(node, f"{SET} 1") == [0]
    assert node.manage(action) == 0
    assert not state.mixed


def test_an_instance_under_a_vgpu_is_in_use() -> None:
    node = with_instances("h100-pcie:vfio")
    gi = node.gpu.state.instances[0].id
    assert nvml(node, f"GpuInstanceCreateComputeInstance 0 {gi} -1 0") == [0, 0]
    vf = node.vfs()[0]
    assert node.make(vf, 821) == 0
    assert nvml(node, f"ComputeInstanceDestroy 0 {gi} 0") == [IN_USE]
    assert nvml(node, f"GpuInstanceDestroy 0 {gi} -1") == [IN_USE]
    assert node.drop(vf) == 0
    assert nvml(node, f"ComputeInstanceDestroy 0 {gi} 0") == [0]
    assert nvml(node, f"GpuInstanceDestroy 0 {gi} -1") == [0]


@pytest.mark.parametrize(("template", "on_with_functions"), [("a30:mdev", IN_USE), ("h100-pcie:vfio", 0)])
def test_mig_mode_and_functions(template: str, on_with_functions: int) -> None:
    node = Kernel(template)
    node.manage()
    assert nvml(node, "DeviceSetMigMode 0 -1 -1 1") == [0, on_with_functions], (
        "Ampere needs a reset, which its functions block"
    )
    node.manage("-d")
    if on_with_functions:
        node.ok("reset", gpu=0)
    assert node.gpu.state.mig
    node.manage("-e")
    assert nvml(node, "DeviceSetMigMode 0 -1 -1 0") == [IN_USE]
    assert node.gpu.state.pending, "refused: the pending mode does not change"
    assert node.control("reset", gpu=0)[0] == IN_USE
    node.manage("-d")
    assert nvml(node, "DeviceSetMigMode 0 -1 -1 0") == [0, 0]


def test_mig_mode_waits_for_vgpus() -> None:
    node = Kernel("h100-pcie:vfio")
    node.manage()
    vf = node.vfs()[0]
    assert node.make(vf, node.listed(vf)[0]) == 0
    assert nvml(node, "DeviceSetMigMode 0 -1 -1 1") == [0, IN_USE]
    assert not node.gpu.state.mig


def test_types_follow_mig_mode() -> None:
    node = Kernel("a30:vfio")
    node.manage()
    vf = node.vfs()[0]
    assert node.listed(vf) == [684, 685, 686, 687, 688]
    node.manage("-d")
    assert nvml(node, "DeviceSetMigMode 0 -1 -1 1") == [0, 0]
    node.manage("-e")
    assert node.listed(vf) == [], "MIG mode without an instance: no types"
    assert nvml(node, "DeviceCreateGpuInstance 0 -1 -1 14")[0] == 0
    assert node.listed(vf) == [689]


def test_mixed_size_mode() -> None:
    node = Kernel("l40s:vfio")
    assert nvml(node, GET) == [0, 0]
    assert nvml(node, f"{SET} 1") == [IN_USE], "virtual functions must exist first"
    node.manage()
    assert nvml(node, f"{SET} 2") == [INVALID]
    assert nvml(node, f"{SET} 1") == [0]
    assert nvml(node, GET) == [0, 1]
    first, second = node.vfs()[:2]
    assert (node.make(first, 1150), node.make(second, 1155)) == (0, 0), "4Q beside 24Q"
    assert nvml(node, f"{SET} 0") == [IN_USE]
    assert (node.drop(first), node.drop(second)) == (0, 0)
    assert nvml(node, f"{SET} 0") == [0]
    assert node.calls[-2]["write"] is True


@pytest.mark.parametrize("template", ["tesla-t4:mdev", "l40s", "h100-pcie"])
def test_where_there_is_no_mixed_size_mode(template: str) -> None:
    node = Kernel(template)
    assert nvml(node, GET) == [NOT_SUPPORTED]
    assert nvml(node, f"{SET} 1") == [NOT_SUPPORTED]


def test_mixed_size_mode_and_mig_mode_exclude_each_other() -> None:
    node = Kernel("h100-pcie:vfio")
    node.manage()
    assert nvml(node, f"{SET} 1") == [0]
    assert nvml(node, "DeviceSetMigMode 0 -1 -1 1") == [0, 0]
    assert nvml(node, GET) == [NOT_SUPPORTED]
    assert not node.gpu.state.mixed


@pytest.mark.parametrize(("template", "mode"), [("l40s", 0), ("l40s:vfio", 3), ("a2:mdev", 3), ("a30:guest", 1)])
def test_virtualization_mode(template: str, mode: int) -> None:
    assert nvml(Kernel(template), "DeviceGetVirtualizationMode 0 -1 -1") == [0, mode]


def test_a_gpu_that_was_passed_through_comes_back_as_after_a_reset() -> None:
    for template, stays in (("a30", True), ("h100-pcie", False)):
        node = Kernel(template)
        state = node.gpu.state
        state.mig = state.pending = True
        assert nvml(node, f"DeviceCreateGpuInstance 0 -1 -1 {node.gpu.profiles[0].id}")[0] == 0
        assert node.write("/sys/bus/pci/drivers/nvidia/unbind", state.pci) == 0
        assert node.write("/sys/bus/pci/drivers/nvidia/bind", state.pci) == 0
        assert (state.mig, state.instances) == (stays, [])


def test_mixed_size_mode_is_per_gpu_instance_on_chips_that_share_one() -> None:
    node = Kernel("rtx-pro-6000:vfio")
    node.gpu.state.mig = node.gpu.state.pending = True
    node.manage()
    one, two = (nvml(node, "DeviceCreateGpuInstance 0 -1 -1 47")[1] for _ in range(2))
    get, put = (f"GpuInstance{word}VgpuHeterogeneousMode 0 {one} -1" for word in ("Get", "Set"))
    assert nvml(node, GET) == [NOT_SUPPORTED], "R575: not of the whole GPU in MIG mode"
    assert nvml(node, f"{put} 2") == [INVALID]
    assert nvml(node, f"GpuInstanceSetVgpuHeterogeneousMode 0 {one + two + 9} -1 1") == [INVALID]
    assert nvml(node, f"{put} 1") == [0]
    assert nvml(node, get) == [0, 1]
    assert nvml(node, f"GpuInstanceGetVgpuHeterogeneousMode 0 {two} -1") == [0, 0]
    dc_12q, dc_6q, dc_24q, dc_8q = 1558, 1553, 1561, 1555
    assert dc_24q in node.listed(node.vfs()[0])
    made = [node.make(vf, kind) for vf, kind in zip(node.vfs(), (dc_6q, dc_12q, dc_6q, dc_8q), strict=False)]
    assert made == [0, 0, 0, 0]
    placed = [(v.gi, v.placement) for v in node.gpu.state.vgpus]
    assert placed == [(min(one, two), 0), (min(one, two), 12), (min(one, two), 6), (max(one, two), -1)]
    assert nvml(node, f"{put} 0") == [IN_USE]


def test_the_scheduler_is_per_gpu_instance_on_the_same_chips() -> None:
    node = Kernel("rtx-pro-6000:vfio")
    node.gpu.state.mig = node.gpu.state.pending = True
    node.manage()
    one, two, plain = (nvml(node, f"DeviceCreateGpuInstance 0 -1 -1 {p}")[1] for p in (47, 47, 14))
    get, put = (f"GpuInstance{word}VgpuSchedulerState 0 {{}} -1" for word in ("Get", "Set"))
    assert nvml(node, get.format(one)) == [0, 1, 0, 0, 0]
    assert nvml(node, get.format(plain)) == [NOT_SUPPORTED], "no vGPU type has this profile"
    assert nvml(node, f"{put.format(plain)} 2 0 0 0") == [NOT_SUPPORTED]
    assert nvml(node, f"{put.format(one + two + plain)} 2 0 0 0") == [INVALID]
    assert nvml(node, f"{put.format(two)} 4 0 0 0") == [NOT_SUPPORTED]
    assert nvml(node, f"{put.format(two)} 3 2 0 480") == [0]
    assert nvml(node, f"GpuInstanceSetVgpuHeterogeneousMode 0 {two} -1 1") == [NOT_SUPPORTED], "not under fixed share"
    assert [nvml(node, get.format(gi))[1] for gi in (one, two)] == [1, 3]
    assert nvml(node, f"GpuInstanceSetVgpuHeterogeneousMode 0 {one} -1 1") == [0]
    assert nvml(node, f"{put.format(one)} 3 0 0 0") == [NOT_SUPPORTED], "not in mixed-size mode"
    assert node.make(node.vfs()[0], 1558) == 0
    assert nvml(node, f"{put.format(min(one, two))} 2 0 0 0") == [NOT_SUPPORTED], "it has a vGPU"
    assert nvml(node, f"{put.format(max(one, two))} 2 0 0 0") == [0]


def test_where_gpu_instances_have_no_mixed_size_mode() -> None:
    node = with_instances("h100-pcie:vfio")
    gi = node.gpu.state.instances[0].id
    assert nvml(node, f"GpuInstanceGetVgpuHeterogeneousMode 0 {gi} -1") == [NOT_SUPPORTED]
    assert nvml(node, f"GpuInstanceSetVgpuHeterogeneousMode 0 {gi} -1 1") == [NOT_SUPPORTED]
    assert nvml(node, f"GpuInstanceSetVgpuSchedulerState 0 {gi} -1 2 0 0 0") == [NOT_SUPPORTED]
