"""The simulated kernel shows what was captured on real hosts: files, formats, addresses, lists."""

from __future__ import annotations

import errno
import re
from pathlib import Path

import pytest

from system.sim.kernel_setup import PCI, Kernel, uuid

CAPTURED = Path(__file__).resolve().parents[2] / "recorded/captured"
A2_FUNCTIONS = [*(f"0000:08:00.{n}" for n in range(4, 8)), *(f"0000:08:01.{n}" for n in range(8))]
A2_FUNCTIONS += [f"0000:08:02.{n}" for n in range(4)]


def sessions(name: str) -> list[tuple[str, list[str]]]:
    """Return the commands of a capture with their output."""
    found: list[tuple[str, list[str]]] = []
    for line in (CAPTURED / f"{name}.txt").read_text().splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif found and not line.startswith("#"):
            found[-1][1].append(line)
    return found


def test_every_file_of_an_a2_while_a_4_gb_vgpu_runs() -> None:
    node = Kernel("a2:mdev", "0000:08:00.0")
    assert node.manage() == 0
    assert node.make("0000:08:00.4", 746) == 0
    compared = 0
    for command, printed in sessions("a2-mdev-sysfs"):
        assert node.files.read(command.removeprefix("cat ")).splitlines() == printed, command
        compared += 1
    assert compared == 60, "15 types, four files each"


def test_the_functions_of_an_a2() -> None:
    node = Kernel("a2:mdev", "0000:08:00.0")
    node.manage()
    assert node.vfs() == A2_FUNCTIONS
    vf = f"{PCI}/0000:08:00.4"
    assert [node.files.read(f"{vf}/{f}") for f in ("vendor", "device", "subsystem_device")] == [
        *("0x10de", "0x25b6", "0x0000")
    ]
    assert node.files.read(f"{vf}/config")[:4] == "\xff\xff\xff\xff", "configuration space of a function hides its ids"
    assert node.files.read(f"{node.pf}/config")[:4] == "\xde\x10\xb6\x25"
    assert node.files.real(f"{vf}/physfn") == node.files.real(node.pf)
    assert [
        node.files.read(f"{node.pf}/sriov_{f}") for f in ("totalvfs", "numvfs", "offset", "stride", "vf_device")
    ] == [*("16", "16", "4", "1", "25b6")]


def test_three_vgpus_of_the_harvester_snapshot() -> None:
    node = Kernel("a2:mdev", "0000:08:00.0")
    node.manage()
    made = {"0000:08:00.4": 754, "0000:08:00.6": 751, "0000:08:02.0": 746}
    for number, (function, type_id) in enumerate(made.items()):
        assert node.make(function, type_id, number) == 0
    for function in set(A2_FUNCTIONS) - set(made):
        assert node.listed(function) == [746, 751, 754]
    for function in made:
        assert node.listed(function) == []
    types = {node.files.real(f"/sys/bus/mdev/devices/{uuid(n)}/mdev_type").rpartition("/")[2] for n in range(3)}
    assert types == {"nvidia-754", "nvidia-751", "nvidia-746"}


def test_after_an_a2_8q_only_8_gb_types_stay() -> None:
    node = Kernel("a2:mdev")
    node.manage()
    first, second = node.vfs()[:2]
    assert node.make(first, 747) == 0
    assert node.listed(second) == [747, 752, 755], "8Q, 8A and 8C (Harvester's document)"


def test_the_list_of_an_l40s() -> None:
    node = Kernel("l40s:vfio", "0000:26:00.0")
    node.manage()
    (_, types), (_, current) = sessions("l40s-vendor-vfio-sysfs")
    folder = f"{PCI}/0000:26:00.4/nvidia"
    assert node.files.read(f"{folder}/creatable_vgpu_types").splitlines() == types
    assert node.files.read(f"{folder}/current_vgpu_type").splitlines() == current
    assert sorted(node.files.names(folder)) == [
        *("creatable_vgpu_types", "current_vgpu_type", "gpu_instance_id"),
        *("placement_id", "vgpu_params", "warm_update"),
    ]
    assert not node.files.exists("/sys/bus/mdev")
    assert not node.files.exists("/sys/class/mdev_bus")
    assert not node.files.exists(f"{node.pf}/nvidia")


def test_another_edition_of_the_driver_lists_compute_types_too() -> None:
    plain, compute = Kernel("l40s:vfio"), Kernel("l40s:vfio:compute")
    for node in (plain, compute):
        node.manage()
    more = set(compute.listed(compute.vfs()[0])) - set(plain.listed(plain.vfs()[0]))
    assert more == set(range(1179, 1186))


def test_an_a40_before_and_after_its_first_vgpu() -> None:
    node = Kernel("a40:mdev", "0000:e8:00.0")
    node.manage()
    text = (CAPTURED / "a40-sriov-mdev.txt").read_text()
    parents = re.findall(r"0000:e8:0\d\.\d", text.partition("$ ls /sys/class/mdev_bus/")[2].partition("$ cat")[0])
    assert sorted(node.files.names("/sys/class/mdev_bus")) == sorted(set(parents))
    rows = re.findall(r"^nvidia-(\d+), (NVIDIA A40-\S+) (\d)$", text, re.MULTILINE)
    vf = "0000:e8:00.4"
    shown = [
        (str(i), node.files.read(f"{PCI}/{vf}/mdev_supported_types/nvidia-{i}/name"), "1") for i in node.listed(vf)
    ]
    assert shown == rows
    assert node.make(vf, 558) == 0
    assert node.listed(vf) == []


def test_the_functions_of_an_rtx_pro_6000() -> None:
    node = Kernel("rtx-pro-6000:vfio", "0001:04:00.0")
    text = (CAPTURED / "rtx-pro-6000-vgpu-host.txt").read_text()
    answer = node.ok("sriov-manage", action="-e", address="0001:04:00.0")
    assert answer == {"rc": 0, "out": ["Enabling VFs on 0001:04:00.0"], "err": []}
    links = re.findall(r"(virtfn\d+) -> (\S+)", text)
    assert len(links) == 5
    for name, target in links:
        assert node.files.link(f"{node.pf}/{name}") == target
    assert len(node.vfs()) == 48


def test_the_functions_of_an_rtx_a5000() -> None:
    node = Kernel("rtx-a5000:mdev", "0000:01:00.0")
    node.manage()
    assert (node.vfs()[0], node.vfs()[-1], len(node.vfs())) == ("0000:01:00.4", "0000:01:03.3", 24)
    assert {node.files.read(f"{PCI}/{vf}/class") for vf in node.vfs()} == {node.files.read(f"{node.pf}/class")}


def test_what_udev_and_libvirt_read() -> None:
    node = Kernel("a2:mdev", "0000:08:00.0")
    assert node.files.read(f"{node.pf}/uevent").splitlines() == [
        *("DRIVER=nvidia", "PCI_CLASS=30200", "PCI_ID=10DE:25B6", "PCI_SUBSYS_ID=10DE:157E"),
        *("PCI_SLOT_NAME=0000:08:00.0", "MODALIAS=pci:v000010DEd000025B6sv000010DEsd0000157Ebc03sc02i00"),
    ]
    assert node.files.read(f"{node.pf}/driver_override") == "(null)"


@pytest.mark.parametrize("template", ["a2", "l40s", "tesla-t4"])
def test_without_the_vgpu_host_driver_there_is_no_vgpu(template: str) -> None:
    node = Kernel(template)
    assert node.manage() == 1
    assert not node.files.exists("/sys/class/mdev_bus")
    assert node.write(f"{node.pf}/sriov_numvfs", "4") == errno.ENOENT, "no driver, or no such file"
    assert "nvidia_vgpu_vfio" not in node.files.read("/proc/modules")
