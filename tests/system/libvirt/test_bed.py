"""The test bed itself: real libvirtd and mdevctl see a simulated node as a host with vGPUs."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from aliquot.hardware.kernel_files import RealFiles
from aliquot.sim import mount_process as mounting

from . import bed as beds
from .bed import Bed

UUID = "c73f1fa6-489e-4834-9476-d70dabd98c41"
OTHER = "c73f1fa6-489e-4834-9476-d70dabd98c42"
GPU = "0000:01:00.0"


@pytest.fixture
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := beds.missing():
        pytest.skip(reason)
    return tmp_path_factory.getbasetemp().parent / "libvirt-cache"


def mdev(parent: str, kind: str, unique: str) -> str:
    """Return the input of nodedev-define."""
    return (
        f"<device><parent>{parent}</parent><capability type='mdev'><type id='{kind}'/><uuid>{unique}</uuid>"
        "</capability></device>"
    )


def name_of(parent: str, unique: str) -> str:
    return f"mdev_{unique.replace('-', '_')}_{parent.removeprefix('pci_')}"


@pytest.fixture
def sriov(cache: Path) -> Iterator[Bed]:
    with beds.made("a30:mdev", cache) as one:
        yield one


def test_an_mdev_from_definition_over_a_reboot_to_removal(sriov: Bed, tmp_path: Path) -> None:
    bed = sriov
    assert bed.virsh("nodedev-list", "--cap", "mdev_types").split() == []
    bed.enable(GPU)
    parents = bed.virsh("nodedev-list", "--cap", "mdev_types").split()
    assert len(parents) == 6
    shown = ElementTree.fromstring(bed.virsh("nodedev-dumpxml", parents[0]))
    kinds = {t.findtext("name"): t.get("id") for t in shown.iter("type")}
    kind = kinds["NVIDIA A30-8C"]
    assert kind is not None
    assert shown.findtext("driver/name") == "nvidia"
    wanted = tmp_path / "mdev.xml"
    wanted.write_text(mdev(parents[0], kind, UUID))
    bed.virsh("nodedev-define", str(wanted))
    name = name_of(parents[0], UUID)
    assert bed.virsh("nodedev-list", "--cap", "mdev", "--inactive").split() == [name]
    bed.virsh("nodedev-start", name)
    assert bed.files.names("/sys/bus/mdev/devices") == (UUID,)
    assert RealFiles(bed.root).names("/sys/bus/mdev/devices") == (UUID,), "the same kernel, through the mount"
    bed.virsh("nodedev-autostart", name)
    assert bed.run("mdevctl", "list").stdout.split()[0] == UUID
    assert "auto" in bed.run("mdevctl", "list", "--defined").stdout
    bed.until(lambda: name in bed.virsh("nodedev-list", "--cap", "mdev").split())
    active = ElementTree.fromstring(bed.virsh("nodedev-dumpxml", name))
    assert active.findtext("capability/uuid") == UUID

    bed.node.reboot()
    assert bed.files.names("/sys/bus/mdev/devices") == ()
    bed.until(lambda: not bed.virsh("nodedev-list", "--cap", "mdev_types").split())
    assert bed.node.sriov_manage("-e", GPU)["rc"] == 0
    parent = parents[0].removeprefix("pci_").replace("_", ":", 2).replace("_", ".")
    bed.run("mdevctl", "start-parent-mdevs", parent)  # as its udev rule does
    assert bed.files.names("/sys/bus/mdev/devices") == (UUID,), "the same vGPU under the same name"

    bed.until(lambda: name in bed.virsh("nodedev-list", "--cap", "mdev").split())
    bed.virsh("nodedev-destroy", name)
    assert bed.files.names("/sys/bus/mdev/devices") == ()
    bed.virsh("nodedev-undefine", name)
    bed.until(lambda: not bed.virsh("nodedev-list", "--cap", "mdev", "--all").split())


def test_mdevs_on_the_gpu_itself_and_nothing_left_behind(cache: Path, tmp_path: Path) -> None:
    with beds.made("t4:mdev", cache) as bed:
        parent = bed.virsh("nodedev-list", "--cap", "mdev_types").strip()
        assert parent == "pci_0000_01_00_0"
        kind = bed.run("sh", "-c", f"cd /sys/class/mdev_bus/{GPU}/mdev_supported_types; grep -l 'T4-4Q$' */name").stdout
        kind = kind.partition("/")[0]
        for unique in (UUID, OTHER):
            wanted = tmp_path / "mdev.xml"
            wanted.write_text(mdev(parent, kind, unique))
            bed.virsh("nodedev-define", str(wanted))
            bed.virsh("nodedev-start", name_of(parent, unique))
        assert sorted(bed.files.names("/sys/bus/mdev/devices")) == [UUID, OTHER]
        left = bed.files.read(f"/sys/class/mdev_bus/{GPU}/mdev_supported_types/{kind}/available_instances")
        assert left == "2", "four fit"
        again = bed.virsh("nodedev-create", str(wanted), check=False)
        assert "error" in again, "that UUID is taken"
        root, pid = bed.root, bed.pid
    assert mounting.mounted(root) is None
    assert not os.path.exists(root)
    assert not os.path.exists(f"/proc/{pid}")
    assert not os.path.exists(f"/etc/mdevctl.d/{GPU}"), "the definition is not on the host"
