"""Hosts whose control groups slurmd's own guess does not fit: our lines can be read by slurmd there all the same."""

from __future__ import annotations

import msgspec
import pytest

from .applying import Host
from .bed import Bed
from .cgroups import missing


def test_lines_are_read_where_slurmd_finds_no_control_groups_by_itself(bed: Bed) -> None:
    if missing():
        pytest.skip(missing())
    # A machine of a bed has some hierarchies of version 1, and no systemd's.
    bed.conf(bed.node("n1"), constrain=True)
    host = Host(bed)
    host.ok("apply", "--gpu", "0", "--mig", "3g.20gb*2")
    bed.gpu_devices(0, 12, 13, 21, 22)
    bed.gpu_devices(1)
    said = host.ok("slurm", "render", "--node-name", "n1", "--check", "always", "-o", "json")
    assert msgspec.json.decode(said)["checkedBySlurmd"] is True
