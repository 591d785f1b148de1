"""Findings about AutoDetect=nvml, compared with the results of slurmd's own plugin over the simulator's NVML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from .bed import Bed
from .site import Site

PARTITION = "PartitionName=all Nodes=ALL Default=YES"


class Detecting:
    """A node with GPU 0 partitioned and GPU 1 whole, whose slurmd detects GPUs."""

    def __init__(self, bed: Bed) -> None:
        if bed.release.blind:
            pytest.skip(bed.release.blind)
        self.bed = bed
        self.site = Site(bed, "a100-sxm4-40gb*2")
        self.env, self.more = self.site.detection()

    def conf(self, gres: str, text: str = "AutoDetect=nvml\n") -> None:
        node = self.bed.node("n1", f"CPUs=2 RealMemory=1000 Gres={gres}")
        self.bed.conf(f"{node}\n{PARTITION}", gres=text, more=self.more)

    def reported(self) -> list[str]:
        """Return the rules about detection that check reports as errors."""
        words = ("--conf-dir", str(self.bed.etc), "--sim", "n1", "--node-name", "n1", "-o", "json")
        env = {"ALIQUOT_STATE_DIR": self.site.state}
        done = self.bed.aliquot("slurm", "check", *words, "--slurm-version", self.bed.release.name, env=env)
        assert done.code in (0, 30), done
        found = json.loads(done.out)["findings"]
        return [f["rule"] for f in found if f["severity"] == "error" and f["rule"] != "OPEN_DEVICES"]

    def listed(self) -> list[tuple[str, str]]:
        """Return type and files of each GRES that ``slurmd -G`` finds; [] if it does not start."""
        done = self.bed.run("slurmd", "-G", "-N", "n1", env=self.env)
        return re.findall(r"Gres Name=gpu Type=(\S+) Count=1 .*? File=(\S+)", done.err) if done.code == 0 else []


@pytest.fixture
def node(bed: Bed) -> Iterator[Detecting]:
    made = Detecting(bed)
    yield made
    made.site.close()


def test_types_fit_as_slurmd_fits_them(node: Detecting) -> None:
    node.site.cut(0, "3g.20gb", "1g.5gb")
    node.conf("gpu:a100_3g.20gb:1,gpu:1g.5gb:1,gpu:a100:1")
    assert node.reported() == []
    assert {kind for kind, _ in node.listed()} == {"a100_3g.20gb", "1g.5gb", "a100"}
    node.conf("gpu:a100_3g.20gb:2,gpu:h100:1")
    assert node.reported() == ["AUTODETECT_TYPE"] * 2
    assert [kind for kind, _ in node.listed() if "nvidia" in _] == ["a100_3g.20gb"]
    node.conf("gpu:a100:2")
    assert node.reported() == ["AUTODETECT_TYPE"]
    assert sorted(files.count(",") for kind, files in node.listed() if kind == "a100") == [0, 2]


def test_mig_mode_without_instances(node: Detecting) -> None:
    node.site.cut(0)
    node.conf("gpu:a100:2")
    assert "AUTODETECT_EMPTY" in node.reported()
    old = node.bed.release.name == "22.05"
    assert [files for _, files in node.listed()] == ([] if old else ["/dev/nvidia0", "/dev/nvidia1"])


def test_a_release_without_the_plugin_finds_nothing(node: Detecting) -> None:
    node.site.cut(0, "3g.20gb")
    node.conf("gpu:1", "AutoDetect=nvidia\n")
    old = node.bed.release.name == "22.05"
    assert set(node.reported()) >= {"AUTODETECT_NO_MIG", *(["AUTODETECT_OLD"] if old else [])}
    assert node.listed() == []
