"""The scheduler annotation of SRIOVGPUDevices: set, restored after a reboot, and explained if it cannot be."""

from __future__ import annotations

from pathlib import Path

import pytest

from unit.kubernetes.virtual_machines.harvester.cluster_of_one import One, message, ready

PCI, NAME = "0000:08:00.0", "n-000008000"
FIRST, SECOND = "0000:08:00.4", "0000:08:00.5"
SCHEDULER = "aliquot.dev/scheduler"
TYPE = "NVIDIA RTX Pro 6000 Blackwell DC-1-12Q"


def scheduler(one: One) -> str:
    (gpu,) = one.node.whole.read().gpus
    assert gpu.virtual is not None
    return gpu.virtual.scheduler


@pytest.fixture
def a2(tmp_path: Path) -> One:
    one = One("a2:mdev", tmp_path, "n", PCI).settle()
    return one.kubectl("SRIOVGPUDevice", NAME, enabled=True)


def with_vgpu(one: One, address: str, name: str = "NVIDIA A2-4Q") -> One:
    return one.kubectl("VGPUDevice", one.name_of(address), enabled=True, vGPUTypeName=name)


def test_it_is_set_and_comes_back_after_a_reboot(a2: One) -> None:
    with_vgpu(a2, FIRST)
    before = a2.node.whole.read().gpus[0].vgpus[0].key
    a2.mark("SRIOVGPUDevice", NAME, SCHEDULER, "equal-share, 2ms")
    assert (scheduler(a2), ready(a2.device(PCI))) == ("equal-share,2ms", ("True", "Enabled"))
    assert [v.key for v in a2.node.whole.read().gpus[0].vgpus] == [before], "created again as it was"
    with_vgpu(a2, SECOND)
    a2.reboot().settle()
    assert scheduler(a2) == "equal-share,2ms"
    assert len(a2.node.whole.read().gpus[0].vgpus) == 2
    a2.mark("SRIOVGPUDevice", NAME, SCHEDULER, None)
    assert scheduler(a2) == "equal-share,2ms", "without the annotation it stays"
    a2.mark("SRIOVGPUDevice", NAME, SCHEDULER, "best-effort")
    assert scheduler(a2) == "best-effort"


def test_a_wrong_one_is_named_and_holds_up_nothing_else(a2: One) -> None:
    a2.mark("SRIOVGPUDevice", NAME, SCHEDULER, "fair")
    assert ready(a2.device(PCI)) == ("False", "Scheduler")
    assert "annotation aliquot.dev/scheduler: 'fair' is not a policy" in message(a2.device(PCI))
    with_vgpu(a2, FIRST)
    assert len(a2.node.whole.read().gpus[0].vgpus) == 1
    assert scheduler(a2) == "best-effort"


def test_one_that_must_wait_for_a_vm_is_set_once_it_ended(a2: One) -> None:
    with_vgpu(a2, FIRST)
    (vgpu,) = a2.node.whole.read().gpus[0].vgpus
    a2.control("vm-start", name="win10", devices=[vgpu.uuid])
    a2.mark("SRIOVGPUDevice", NAME, SCHEDULER, "fixed-share")
    assert (scheduler(a2), ready(a2.device(PCI))) == ("best-effort", ("False", "Held"))
    assert "win10" in message(a2.device(PCI))
    a2.control("vm-stop", name="win10")
    a2.settle()
    assert (scheduler(a2), ready(a2.device(PCI))) == ("fixed-share", ("True", "Enabled"))


def test_a_partitioned_gpu_has_none_and_is_partitioned_nevertheless(tmp_path: Path) -> None:
    one = One("a100-sxm4-40gb:mdev", tmp_path, "n", PCI).settle()
    one.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    one.mark("SRIOVGPUDevice", NAME, SCHEDULER, "equal-share")
    assert one.node.whole.read().gpus[0].mig.enabled
    assert ready(one.device(PCI)) == ("False", "Scheduler")
    assert "MIG mode disabled" in message(one.device(PCI))
    assert message(one.device(PCI)).endswith(f" | next: kubectl annotate sriovgpudevice {NAME} {SCHEDULER}-")


def test_gpu_instances_that_share_vgpus_have_it_one_by_one(tmp_path: Path) -> None:
    one = One("rtx-pro-6000-blackwell-server-edition:vfio", tmp_path, "n", PCI).settle()
    one.kubectl("SRIOVGPUDevice", NAME, enabled=True)
    one.mark("SRIOVGPUDevice", NAME, SCHEDULER, "equal-share,2ms")
    assert ready(one.device(PCI)) == ("True", "Enabled"), "before the first GPU instance"
    counts = [{**p, "requested": 2 if p["id"] == 47 else 0} for p in one.mig(PCI)["spec"]["profileSpec"]]
    one.kubectl("MigConfiguration", NAME, enabled=True, profileSpec=counts)
    assert inside(one) == ["equal-share,2ms"] * 2
    function = one.node.whole.read().gpus[0].virtual
    assert function is not None
    with_vgpu(one, function.addresses[0], TYPE)
    one.start_vm(function.addresses[0])
    one.mark("SRIOVGPUDevice", NAME, SCHEDULER, "fixed-share")
    assert (inside(one), ready(one.device(PCI))) == (["equal-share,2ms", "fixed-share"], ("False", "Held"))
    assert "guest" in message(one.device(PCI)), "the other GPU instance need not wait"
    one.stop_vm()
    assert inside(one.settle()) == ["fixed-share"] * 2
    one.reboot().settle()
    assert (inside(one), ready(one.device(PCI))) == (["fixed-share"] * 2, ("True", "Enabled"))
    assert list(one.live()) == [function.addresses[0]]


def inside(one: One) -> list[object]:
    """Return the schedulers of the GPU instances."""
    return [i.scheduler for i in one.node.whole.read().gpus[0].instances]
