"""mdevs that libvirt keeps, and their holders in running VMs."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.errors import BlockedError
from aliquot.libvirt import nodedev
from aliquot.libvirt.errors import LibvirtError

from .memory import MemoryLibvirt
from .nodes import A2, L40S, T4, changed, make_gpu, node

NODE = node(A2, L40S, T4)


def test_mdevs_of_every_framework_that_has_them() -> None:
    found = nodedev.mdevs(NODE, ())
    assert [m.function for m in found] == [v.function for v in (*A2.vgpus, *T4.vgpus)]
    assert {m.state for m in found} == {"not known to libvirt"}
    assert found[0].type == "nvidia-746"


def test_define_and_autostart_once() -> None:
    libvirt, messages = MemoryLibvirt(), list[str]()
    for _ in range(2):
        for each in nodedev.select_mdevs(NODE, libvirt.mdevs(), ["0000:08:00.4"]):
            nodedev.autostart(libvirt, each, messages.append)
    (node_device,) = libvirt.mdevs()
    assert (node_device.uuid, node_device.parent, node_device.type) == (A2.vgpus[0].uuid, "0000:08:00.4", "nvidia-746")
    assert node_device.persistent
    assert node_device.autostart
    assert len(messages) == 2
    (each,) = nodedev.select_mdevs(NODE, libvirt.mdevs(), [A2.vgpus[0].uuid.upper()])
    assert each.state == "inactive, persistent, autostart"
    nodedev.undefine(libvirt, each, messages.append)
    assert libvirt.mdevs() == ()


class LateLibvirt(MemoryLibvirt):
    """A libvirt that does not know an mdev that it has just defined: the kernel's event comes later."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def autostart_mdev(self, name: str) -> None:
        self.asked += 1
        if self.asked < 3:
            error = LibvirtError("libvirt has no such mdev")
            error.code = "NO_MDEV"
            raise error
        super().autostart_mdev(name)


def test_an_mdev_that_libvirt_knows_a_moment_later_is_asked_for_again() -> None:
    libvirt = LateLibvirt()
    (each,) = nodedev.select_mdevs(NODE, libvirt.mdevs(), ["0000:08:00.4"])
    nodedev.autostart(libvirt, each, lambda _: None)
    assert libvirt.asked == 3
    assert libvirt.mdevs()[0].autostart


def test_what_a_reboot_took_is_started_from_its_definition() -> None:
    libvirt = MemoryLibvirt()
    for each in nodedev.select_mdevs(NODE, libvirt.mdevs(), ["0000:08:00.4"]):
        nodedev.define(libvirt, each, lambda _: None)
    rebooted = node(changed(msgspec.structs.replace(A2, vgpus=()), recorded_vgpus=A2.vgpus[:2]))
    first, second = nodedev.mdevs(rebooted, libvirt.mdevs())
    assert (first.exists, first.persistent, second.persistent) == (False, True, False)
    nodedev.start(libvirt, first, lambda _: None)
    assert libvirt.calls[-1][0] == "start"
    with pytest.raises(LibvirtError) as caught:
        nodedev.start(libvirt, second, lambda _: None)
    assert (caught.value.code, caught.value.next_step) == (
        "NOT_DEFINED",
        f"aliquot libvirt nodedev define {second.uuid}",
    )
    # An existing one needs no start.
    (there, *_) = nodedev.mdevs(NODE, libvirt.mdevs())
    before = list(libvirt.calls)
    nodedev.start(libvirt, there, lambda _: None)
    assert libvirt.calls == before


def test_mig_backed_ones_are_not_for_libvirt() -> None:
    pro = make_gpu("NVIDIA A100-PCIE-40GB", 0x51, "sriov-mdev", "A100-1-5C")
    libvirt = MemoryLibvirt()
    (each,) = nodedev.mdevs(node(pro), ())
    with pytest.raises(LibvirtError) as caught:
        nodedev.autostart(libvirt, each, lambda _: None)
    assert caught.value.code == "MIG_TYPE"
    assert libvirt.calls == []


def test_a_kernel_without_mdevs() -> None:
    with pytest.raises(BlockedError, match="no mdevs") as caught:
        nodedev.select_mdevs(node(L40S), (), [])
    assert caught.value.next_step == "aliquot restore --boot"
    with pytest.raises(BlockedError, match="no vGPU to define"):
        nodedev.select_mdevs(node(msgspec.structs.replace(A2, vgpus=())), (), [])
    with pytest.raises(BlockedError, match=r"mdev 0000:08:00\.7 not found"):
        nodedev.select_mdevs(NODE, (), ["0000:08:00.7"])
