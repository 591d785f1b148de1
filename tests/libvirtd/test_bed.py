"""The bed itself: real libvirtd and mdevctl see a simulated node as a machine with vGPUs."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import bed as beds
from .bed import Bed

UUID = "c73f1fa6-489e-4834-9476-d70dabd98c41"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    if reason := beds.missing():
        pytest.skip(reason)
    with beds.made("a2:mdev", tmp_path_factory.getbasetemp().parent / "libvirt-cache") as one:
        yield one


def test_an_mdev_from_definition_to_removal(bed: Bed, tmp_path: Path) -> None:
    gpu = next(n for n in bed.files.names("/sys/bus/pci/drivers/nvidia") if n.count(":") == 2)
    assert bed.virsh("nodedev-list", "--cap", "mdev_types").split() == []
    bed.enable(gpu)
    parents = bed.virsh("nodedev-list", "--cap", "mdev_types").split()
    assert len(parents) == 16
    shown = ElementTree.fromstring(bed.virsh("nodedev-dumpxml", parents[0]))
    kinds = {t.get("id"): t.findtext("name") for t in shown.iter("type")}
    assert kinds["nvidia-746"] == "NVIDIA A2-4Q"
    assert shown.findtext("driver/name") == "nvidia"
    wanted = tmp_path / "mdev.xml"
    wanted.write_text(
        f"<device><parent>{parents[0]}</parent><capability type='mdev'><type id='nvidia-746'/>"
        f"<uuid>{UUID}</uuid></capability></device>"
    )
    bed.virsh("nodedev-define", str(wanted))
    name = f"mdev_{UUID.replace('-', '_')}_{parents[0].removeprefix('pci_')}"
    assert bed.virsh("nodedev-list", "--cap", "mdev", "--inactive").split() == [name]
    bed.virsh("nodedev-start", name)
    assert bed.files.names("/sys/bus/mdev/devices") == (UUID,)
    bed.virsh("nodedev-autostart", name)
    assert bed.run("mdevctl", "list").stdout.split()[0] == UUID
    assert "auto" in bed.run("mdevctl", "list", "--defined").stdout
    bed.until(lambda: name in bed.virsh("nodedev-list", "--cap", "mdev").split())
    active = ElementTree.fromstring(bed.virsh("nodedev-dumpxml", name))
    assert active.findtext("capability/uuid") == UUID
    bed.virsh("nodedev-destroy", name)
    assert bed.files.names("/sys/bus/mdev/devices") == ()
    bed.virsh("nodedev-undefine", name)
    bed.until(lambda: bed.virsh("nodedev-list", "--cap", "mdev", "--all").split() == [])
