"""Slurm's own NVML plugin over the simulator's libnvidia-ml.so.1, an independent check of the GRES.

The detected GRES must always equal the rendered ones, including the device files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest

from aliquot.core.model.inventory import Inventory
from aliquot.slurm.client.errors import OldSlurmError
from aliquot.slurm.client.models import Version
from aliquot.slurm.files.gres_conf import GresForm, lines
from aliquot.slurm.files.job_devices import GresChoice, OfferedDevices, offered_devices
from aliquot.slurm.files.node_line import gres_value
from aliquot.slurm.files.slot_board import ORDER_FILE
from aliquot.slurm.gpus.gres_types import STYLES, TypeStyle

from .bed import Bed
from .cgroups import missing
from .release import NEW, OLD
from .site import Site

PARTITION = "PartitionName=all Nodes=ALL Default=YES"
Rows = set[tuple[str, frozenset[str]]]
Start = Callable[[str], "Detected"]


class Detected:
    """A node whose slurmd finds its GPUs by NVML."""

    def __init__(self, bed: Bed, template: str) -> None:
        if bed.release.blind or missing():
            pytest.skip(bed.release.blind or missing())
        self.bed = bed
        self.site = Site(bed, template)
        self.env, self.more = self.site.detection()

    def conf(self, gres: str, text: str) -> None:
        node = self.bed.node("n1", f"CPUs=2 RealMemory=1000 Gres={gres}")
        self.bed.conf(f"{node}\n{PARTITION}", gres=text, more=self.more, constrain=True)

    def rows(self, found: OfferedDevices, text: str) -> Rows:
        """Return the types with their device files that ``slurmd -G`` reads from a gres.conf."""
        self.conf(gres_value(found), text)
        done = self.bed.run("slurmd", "-G", "-N", "n1", env=self.env)
        answer = re.findall(r"Gres Name=gpu Type=(\S+) Count=(\d+) .*? File=(\S+)", done.err)
        assert done.code == 0, done
        assert {count for _, count, _ in answer} == {"1"}
        return {(kind, frozenset(files.split(","))) for kind, _, files in answer}

    def both(self, inventory: Inventory, style: TypeStyle) -> tuple[Rows, Rows]:
        """Return what slurmd detects, and what it reads in the rendered lines."""
        found = offered_devices(inventory, GresChoice(style=style))
        explicit = "\n".join(lines("n1", found))
        detected = "\n".join(lines("n1", found, GresForm(autodetect="nvml")))
        return self.rows(found, f"{detected}\n"), self.rows(found, f"{explicit}\n")


@pytest.fixture
def start(bed: Bed) -> Iterator[Start]:
    made: list[Detected] = []

    def begin(template: str) -> Detected:
        made.append(Detected(bed, template))
        return made[-1]

    yield begin
    for each in made:
        each.site.close()


@pytest.mark.parametrize("style", STYLES)
def test_detected_and_rendered_are_the_same_also_after_a_change(start: Start, style: TypeStyle) -> None:
    node = start("a100-sxm4-40gb*3")
    for desired_gpu in (("3g.20gb", "2g.10gb", "1g.5gb"), ("1g.5gb", "1g.5gb", "2g.10gb"), ("4g.20gb", "3g.20gb")):
        detected, rendered = node.both(node.site.cut(1, *desired_gpu), style)
        assert detected == rendered
        assert len(rendered) == 2 + len(desired_gpu)


@pytest.mark.parametrize("release", [NEW], ids=["24.11"], indirect=True)
@pytest.mark.parametrize(
    ("template", "requested"),
    [
        ("h100-80gb-hbm3*2", "1g.10gb+me,1g.20gb,3g.40gb"),
        ("b200*2", "1g.23gb+me,1g.45gb,3g.90gb"),
        ("rtx-pro-6000*2", "1g.24gb+me,1g.24gb+gfx"),
        ("a30*2", "2g.12gb,1g.6gb"),
        ("a100-sxm4-40gb*2", "2c.3g.20gb,1c.3g.20gb,3g.20gb"),
    ],
)
def test_families_attributes_and_shared_instances_have_one_name(start: Start, template: str, requested: str) -> None:
    node = start(template)
    detected, rendered = node.both(node.site.apply(0, requested), "short")
    assert detected == rendered
    assert len(rendered) == 2 + requested.count(",")


@pytest.mark.parametrize("release", [OLD], ids=["22.05"], indirect=True)
def test_an_old_slurmd_would_take_a_slice_for_a_whole_gpu_and_is_refused(start: Start) -> None:
    # The plugin of 22.05 names an instance after its memory. It knows A30's 4g.24gb by another name, which matches
    # ``a30`` as every instance name does. A job for a whole A30 would get the instance on the first GPU.
    node = start("a30*2")
    found = offered_devices(node.site.apply(0, "4g.24gb"))
    detecting = GresForm(autodetect="nvml", version=Version(22, 5, 8))
    cut, whole = (next(d for d in found.devices if (d.instance is None) == w) for w in (False, True))
    assert node.rows(found, "AutoDetect=nvml\n") == {(whole.type, frozenset(cut.files))}
    with pytest.raises(OldSlurmError, match=r"22\.05"):
        lines("n1", found, detecting)
    uncut = offered_devices(node.site.apply(0, "disabled"))
    assert lines("n1", uncut, detecting) == ("NodeName=n1 AutoDetect=nvml",)
    assert node.rows(uncut, "AutoDetect=nvml\n") == {("a30", frozenset({f"/dev/nvidia{n}"})) for n in (0, 1)}


def test_a_job_of_a_detected_slice_has_its_uuid_and_its_files(start: Start) -> None:
    node = start("a100-sxm4-40gb*2")
    found = offered_devices(node.site.cut(0, "3g.20gb", "1g.5gb", "1g.5gb"))
    node.conf(gres_value(found), "AutoDetect=nvml\n")
    node.bed.controller()
    node.bed.slurmd("n1", env=node.env)
    for kind in found.counts:
        answer = node.bed.ok("srun", f"--gres=gpu:{kind}:1", "printenv", "CUDA_VISIBLE_DEVICES").strip()
        opened = node.site.opened(f"--gres=gpu:{kind}:1")
        mine = next(d for d in found.devices if {opened[path] for path in d.files} == {"ENXIO"})
        assert mine.type == kind
        if mine.instance is not None:
            assert answer == mine.uuid


def test_a_change_is_detected_by_a_slurmd_that_starts_again(start: Start) -> None:
    node = start("a100-sxm4-40gb*2")
    for desired_gpu in (("1g.5gb",) * 7, ("3g.20gb", "3g.20gb")):
        found = offered_devices(node.site.cut(0, *desired_gpu))
        node.conf(gres_value(found), "AutoDetect=nvml\n")
        for name in ("n1", "slurmctld"):
            if name in node.bed.daemons:
                node.bed.stop(name)
        node.bed.controller()
        node.bed.slurmd("n1", env=node.env)
        shown = re.sub(r"\(S:[^)]*\)", "", node.bed.field("n1", "Gres"))
        assert sorted(shown.split(",")) == sorted(gres_value(found).split(","))
        assert node.bed.state("n1") == "IDLE"


def test_the_order_file_of_slot_boards_hides_what_a_slurmd_would_detect(start: Start) -> None:
    node = start("a100-sxm4-40gb*2")
    found = offered_devices(node.site.read())
    assert len(node.rows(found, "AutoDetect=nvml\n")) == 2
    (node.bed.etc / ORDER_FILE).touch()
    answer = node.bed.run("slurmd", "-G", "-N", "n1", env=node.env)
    assert "Gres Name=gpu" not in answer.err
    assert "Adding fake system GPU data" in answer.err
