"""Hosts on which slurmd's own detection of control groups fails: slurmd can read the rendered lines nevertheless."""

from __future__ import annotations

import msgspec
import pytest

from aliquot.slurm.files import slurmd_validation as validate

from .applying import Host
from .bed import Bed
from .cgroups import missing


def test_lines_are_read_where_slurmd_finds_no_control_groups_by_itself(bed: Bed) -> None:
    # The machine of a bed has some hierarchies of version 1, but not systemd's.
    if missing():
        pytest.skip(missing())
    bed.conf(bed.node("n1"), constrain=True)
    host = Host(bed)
    host.ok("apply", "--gpu", "0", "--mig", "3g.20gb*2")
    bed.gpu_devices(0, 12, 13, 21, 22)
    bed.gpu_devices(1)
    answer = host.ok("slurm", "render", "--node-name", "n1", "--check", "always", "-o", "json")
    assert msgspec.json.decode(answer)["checkedBySlurmd"] is True


def test_lines_are_read_where_the_control_groups_that_are_named_would_end_slurmd(bed: Bed) -> None:
    # Version 2 beside version 1 ends slurmd. So does version 2 without the setup of a running slurmd.
    files = {
        "slurm.conf": validate.minimal("n1", "gpu:a100:1"),
        "gres.conf": "NodeName=n1 Name=gpu Type=a100 File=/dev/nvidia0\n",
        "cgroup.conf": "CgroupPlugin=cgroup/v2\n",
    }
    parsed = validate.parse(files, "n1", bed.inside(str(bed.bin / "slurmd")))
    assert (parsed.counts, parsed.failed) == ({"a100": 1}, False)
