"""Devices that the kubelet allocated to a pod: they count as held before the VM has opened them."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model.actions import Destroy, DestroyVgpu, Reset, SetFunctions, SetMode, SetPassthrough
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import (
    ComputeInstance,
    Gpu,
    GpuInstance,
    GpuVirtualization,
    Holder,
    Inventory,
    Vgpu,
    VirtualFunction,
)
from aliquot.core.model.plan import Policy, make_plan
from aliquot.kubernetes.node_agent.held_devices import devices_to_destroy
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse, held_by_pods, uses_of_devices

PCI, ONE, TWO = "0000:08:00.0", "0000:08:00.4", "0000:08:00.5"
HERE = Inventory(
    "n",
    (
        Gpu(
            PCI,
            "GPU-1",
            0,
            "NVIDIA A2",
            vgpus=(Vgpu(ONE, 746, "NVIDIA A2-4Q", "uuid-1"), Vgpu(TWO, 746, "NVIDIA A2-4Q", "uuid-2")),
            virtual=GpuVirtualization(functions=(VirtualFunction(ONE, 0), VirtualFunction(TWO, 1))),
        ),
    ),
)


def use(*devices: str) -> PodDeviceUse:
    return PodDeviceUse("default", "virt-launcher-vm-x", "compute", devices)


POD = Holder("pod", "default/virt-launcher-vm-x", "compute")


def test_an_mdev_by_its_uuid() -> None:
    first, second = held_by_pods(HERE, [use("uuid-1")]).gpus[0].vgpus
    assert (first.holders, second.holders) == ((POD,), ())


def test_a_vendor_vfio_vgpu_by_the_address_of_its_function() -> None:
    gpu = held_by_pods(HERE, [use(TWO)]).gpus[0]
    assert [v.held for v in gpu.vgpus] == [False, True]
    assert gpu.virtual is not None
    assert [f.holders for f in gpu.virtual.functions] == [(), (POD,)]


def test_a_whole_gpu_by_its_address() -> None:
    assert held_by_pods(HERE, [use(PCI)]).gpus[0].holders == (POD,)


def test_no_other_process_changes_and_the_fingerprint_stays() -> None:
    assert held_by_pods(HERE, []) is HERE
    assert held_by_pods(HERE, [use("other")]) == HERE
    assert held_by_pods(HERE, [use("uuid-1", TWO, PCI)]).fingerprint == HERE.fingerprint


def plan(*actions: DestroyVgpu | SetFunctions | SetPassthrough) -> frozenset[str]:
    return devices_to_destroy(make_plan("n", "f", Desired(()), actions, policy=Policy(), unchanged=0), HERE)


def test_what_ends_with_a_plan() -> None:
    one = DestroyVgpu(gpu=PCI, reason="x", function=ONE, type_id=746, type="NVIDIA A2-4Q", uuid="uuid-1")
    assert plan(one) == {"uuid-1", ONE}
    assert plan(SetFunctions(gpu=PCI, reason="x", count=0)) == {"GPU-1", ONE, TWO, "uuid-1", "uuid-2"}
    assert plan(SetPassthrough(gpu=PCI, reason="x", on=False)) == {PCI}
    assert plan(SetPassthrough(gpu=PCI, reason="x", on=False, function=ONE)) == {ONE}
    assert plan(SetPassthrough(gpu=PCI, reason="x", on=True)) == {"GPU-1", ONE, TWO, "uuid-1", "uuid-2"}
    assert plan(SetPassthrough(gpu=PCI, reason="x", on=True, function=ONE)) == frozenset()
    assert plan() == frozenset()


def test_a_free_function_that_a_vm_gets_as_it_is_ends_with_the_functions() -> None:
    free = msgspec.structs.replace(HERE, gpus=(msgspec.structs.replace(HERE.gpus[0], vgpus=()),))
    off = SetFunctions(gpu=PCI, reason="x", count=0)
    ended = devices_to_destroy(make_plan("n", "f", Desired(()), (off,), policy=Policy(), unchanged=0), free)
    given = use(TWO)
    assert uses_of_devices(ended, [given], free) == [given], "kubelet knows it by its address"


# -- containers next to VMs

SLICED = msgspec.structs.replace(
    HERE,
    gpus=(
        msgspec.structs.replace(
            HERE.gpus[0],
            vgpus=(),
            virtual=GpuVirtualization(),
            instances=(
                GpuInstance(
                    7, "1g.5gb", 19, "4:1", compute_instances=(ComputeInstance(0, "1g.5gb", 0, "0:1", "MIG-7"),)
                ),
            ),
        ),
    ),
)


def ending(action: SetFunctions | SetMode | SetPassthrough | Destroy | Reset) -> frozenset[str]:
    return devices_to_destroy(make_plan("n", "f", Desired(()), (action,), policy=Policy(), unchanged=0), SLICED)


def test_a_container_holds_the_gpu_that_kubelet_gave_it_before_it_runs_anything() -> None:
    assert held_by_pods(SLICED, [use("GPU-1")]).gpus[0].holders == (POD,)
    assert held_by_pods(SLICED, [use("GPU-1::3")]).gpus[0].holders == (POD,)
    assert held_by_pods(SLICED, [use("MIG-7")]).gpus[0].instances[0].held


@pytest.mark.parametrize(
    "action",
    [
        SetFunctions(gpu=PCI, reason="", count=16),
        SetMode(gpu=PCI, reason="", mode="enabled"),
        SetPassthrough(gpu=PCI, reason="", on=True),
        Reset(gpu=PCI, reason=""),
    ],
)
def test_what_changes_a_whole_gpu_ends_what_containers_have_of_it(
    action: SetFunctions | SetMode | SetPassthrough | Reset,
) -> None:
    assert {"GPU-1", "MIG-7"} <= ending(action)


def test_a_gpu_instance_ends_with_its_mig_devices() -> None:
    found = ending(Destroy(gpu=PCI, reason="", instance=7, profile="1g.5gb", profile_id=19, placement="4:1"))
    assert "MIG-7" in found
    assert "GPU-1" not in found


def test_a_shared_gpu_is_known_by_what_its_replicas_are_of() -> None:
    assert uses_of_devices(frozenset({"GPU-1"}), [use("other"), use("GPU-1::3")], HERE) == [use("GPU-1::3")]
    assert uses_of_devices(frozenset({"GPU-2"}), [use("GPU-1::3")], HERE) == []
