"""Devices that a VM gets: free ones, or those that the user named."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.core.model.inventory import GpuInstance, Holder, VirtualFunction
from aliquot.errors import BlockedError, ConfigError
from aliquot.libvirt.choose import VmDeviceRequest, select_devices
from aliquot.libvirt.identify import device_names, identify_device, vm_by_device
from aliquot.libvirt.models import MDEV, PCI

from .nodes import A2, L40S, T4, changed, held, make_gpu, mdev, node, pci, vm

NODE = node(A2, L40S, T4)
WHOLE = make_gpu("NVIDIA L4", 0x41, "", functions=0, index=3)


def test_free_ones_come_in_the_order_of_gpus_and_functions() -> None:
    first, second = select_devices(NODE, VmDeviceRequest((("NVIDIA A2-4Q", 2),)), {})
    assert [(k.hostdev.kind, k.hostdev.uuid) for k in (first, second)] == [(MDEV, v.uuid) for v in A2.vgpus[:2]]
    (other,) = select_devices(NODE, VmDeviceRequest((("l40s-8q", 1),)), {})
    assert (other.hostdev.kind, other.hostdev.address, other.hostdev.managed) == (PCI, "0000:26:00.4", False)
    both = select_devices(NODE, VmDeviceRequest((("A2-4A", 1), ("T4-4Q", 2))), {})
    assert [k.hostdev.uuid for k in both] == [A2.vgpus[2].uuid, *(v.uuid for v in T4.vgpus)]


def test_held_ones_and_those_of_other_machines_are_not_free() -> None:
    running = held(A2, 0, Holder("vm", "4711", "win10"))
    (found,) = select_devices(node(running), VmDeviceRequest((("A2-4Q", 1),)), {})
    assert found.hostdev.uuid == A2.vgpus[1].uuid
    busy = vm_by_device((vm("off", mdev(A2, 1)),))
    with pytest.raises(BlockedError) as caught:
        select_devices(node(running), VmDeviceRequest((("A2-4Q", 2),)), busy)
    assert caught.value.code == "NO_VGPU"
    assert caught.value.brief == "2 x A2-4Q requested, 0 free of 2"
    assert caught.value.details == (
        "NVIDIA A2-4Q on 0000:08:00.4: vm 4711 (win10) has it",
        "NVIDIA A2-4Q on 0000:08:00.5: vm off has it",
    )


def test_the_next_command_plans_what_is_missing_beside_what_there_is() -> None:
    with pytest.raises(BlockedError) as caught:
        select_devices(NODE, VmDeviceRequest((("A2-4Q", 3),)), {})
    assert caught.value.next_step == 'aliquot plan --gpu 0000:08:00.0 --vgpu "NVIDIA A2-4Q*3,NVIDIA A2-4A"'
    with pytest.raises(BlockedError) as caught:
        select_devices(NODE, VmDeviceRequest((("A2-4Q", 9),)), {})
    assert caught.value.next_step == "aliquot vgpu types 0000:08:00.0"
    with pytest.raises(BlockedError) as caught:
        select_devices(NODE, VmDeviceRequest((("A16-4Q", 1),)), {})
    assert (caught.value.brief, caught.value.next_step) == (
        "1 x A16-4Q requested, 0 free: the node has none",
        "aliquot vgpu list",
    )


def test_a_gpu_may_be_asked() -> None:
    twin = make_gpu("NVIDIA A2", 0x09, "sriov-mdev", "A2-4Q", index=1)
    (found,) = select_devices(node(A2, twin), VmDeviceRequest((("A2-4Q", 1),), gpus=(twin.pci,)), {})
    assert found.gpu == twin
    with pytest.raises(BlockedError, match="0 free: the node has none"):
        select_devices(node(A2, twin), VmDeviceRequest((("A2-4A", 1),), gpus=(twin.pci,)), {})


def test_a_type_of_no_table() -> None:
    with pytest.raises(ConfigError) as caught:
        select_devices(NODE, VmDeviceRequest((("A2-9Q", 1),)), {})
    assert (caught.value.code, caught.value.exit_code) == ("UNKNOWN_TYPE", 2)


def test_devices_by_name() -> None:
    ask = VmDeviceRequest(devices=(A2.vgpus[1].uuid.upper(), "0000:08:00.4", L40S.vgpus[1].uuid, "0000:26:00.4"))
    found = select_devices(NODE, ask, {})
    assert [k.hostdev.key for k in found] == [A2.vgpus[1].uuid, A2.vgpus[0].uuid, "0000:26:00.5", "0000:26:00.4"]
    with pytest.raises(ConfigError, match="given twice"):
        select_devices(NODE, VmDeviceRequest(devices=("0000:08:00.4", A2.vgpus[0].uuid)), {})
    # A type next to it takes another one.
    by_name_and_type = select_devices(NODE, VmDeviceRequest((("A2-4Q", 1),), devices=("0000:08:00.4",)), {})
    assert [k.hostdev.uuid for k in by_name_and_type] == [v.uuid for v in A2.vgpus[:2]]


@pytest.mark.parametrize(
    ("word", "code", "next_step"),
    [
        ("0000:08:00.7", "NO_VGPU", "aliquot vgpu types 0000:08:00.0"),
        ("0000:99:00.0", "NO_VGPU", "aliquot vgpu list"),
        ("c73f1fa6-489e-4834-9476-d70dabd98c40", "NO_VGPU", "aliquot vgpu list"),
        ("0000:08:00.0", "FUNCTIONS_IN_USE", "aliquot vgpu disable 0000:08:00.0"),
        (T4.pci, "FUNCTIONS_IN_USE", f"aliquot vgpu disable {T4.pci}"),
        ("0000:26:00.5", "HELD", "aliquot vgpu list"),
    ],
)
def test_devices_that_cannot_be_had(word: str, code: str, next_step: str) -> None:
    busy = vm_by_device((vm("other", pci("0000:26:00.5")),))
    with pytest.raises(BlockedError) as caught:
        select_devices(NODE, VmDeviceRequest(devices=(word,)), busy)
    assert (caught.value.code, caught.value.next_step) == (code, next_step)


def test_functions_that_are_switched_off() -> None:
    off = changed(A2, functions=())
    with pytest.raises(BlockedError) as caught:
        select_devices(node(msgspec.structs.replace(off, vgpus=())), VmDeviceRequest(devices=("0000:08:00.4",)), {})
    assert (caught.value.code, caught.value.next_step) == ("NO_FUNCTION", "aliquot vgpu enable 0000:08:00.0")


def test_a_function_that_vfio_pci_has_is_handed_over_as_it_is() -> None:
    assert L40S.virtual is not None
    bound = tuple(
        VirtualFunction(f.pci, f.number, "vfio-pci" if f.number == 2 else f.driver) for f in L40S.virtual.functions
    )
    (found,) = select_devices(node(changed(L40S, functions=bound)), VmDeviceRequest(devices=("0000:26:00.6",)), {})
    assert (found.hostdev.address, found.hostdev.managed, found.vgpu) == ("0000:26:00.6", False, None)


def test_a_whole_gpu_is_managed_unless_it_is_bound_already() -> None:
    (free,) = select_devices(node(WHOLE), VmDeviceRequest(devices=(WHOLE.pci,)), {})
    assert (free.hostdev.managed, free.whole_gpu) == (True, True)
    bound = msgspec.structs.replace(WHOLE, passthrough=True)
    (ours,) = select_devices(node(bound), VmDeviceRequest(devices=(WHOLE.pci,)), {})
    assert ours.hostdev.managed is False
    working = msgspec.structs.replace(WHOLE, holders=(Holder("process", "99", "python"),))
    with pytest.raises(BlockedError, match=r"process 99 \(python\) has PCI device 0000:41:00\.0"):
        select_devices(node(working), VmDeviceRequest(devices=(WHOLE.pci,)), {})
    divided = msgspec.structs.replace(WHOLE, instances=(GpuInstance(1, "1g.5gb", 19, "0:1"),))
    with pytest.raises(BlockedError) as caught:
        select_devices(node(divided), VmDeviceRequest(devices=(WHOLE.pci,)), {})
    assert caught.value.next_step == "aliquot plan --gpu 0000:41:00.0 --mig disabled"


def test_a_vgpu_that_changed_frameworks_is_known_by_both_names() -> None:
    # After a kernel upgrade the VM still refers to the mdev: no other VM may get its function.
    old = mdev(L40S, 0)
    assert device_names(identify_device(NODE, old)) == {L40S.vgpus[0].uuid, "0000:26:00.4"}
    (found,) = select_devices(NODE, VmDeviceRequest((("L40S-8Q", 1),)), vm_by_device((vm("old", old),)))
    assert found.hostdev.address == "0000:26:00.5"
