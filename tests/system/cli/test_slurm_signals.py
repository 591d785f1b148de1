"""Slurm's own programs change GPUs, too. The helper rolls back if slurmd ends it or if its connection drops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aliquot.sim import lifecycle as control
from aliquot.sim.client import SimClient

CONF = """ClusterName=c
SlurmctldHost=localhost
GresTypes=gpu
NodeName=n1 CPUs=2 RealMemory=1000 Gres=gpu:4
PartitionName=all Nodes=ALL Default=YES
"""


def placements(node: SimClient) -> list[list[str]]:
    return [sorted(str(i["placement"]) for i in gpu["instances"]) for gpu in node.show()["gpus"]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_layout_that_is_being_switched_goes_back(state: str, tmp_path: Path, number: signal.Signals) -> None:
    node = SimClient(state, control.start(state, "a100-sxm4-40gb*2"))
    for gpu in (0, 1):
        node.set_mode(gpu, True)
        for start in (0, 4):
            node.create(gpu, "3g.20gb", start)
    before, calls = placements(node), len(node.calls())
    (tmp_path / "slurm.conf").write_text(CONF)
    node.inject_fault("slow", seconds=0.2)
    words = ("slurm", "helper", "mig_1x4g.20gb_1x3g.20gb", "--node-name", "n1", "--no-reload")
    folders = ("--conf-dir", str(tmp_path), "--dev-root", str(tmp_path))
    process = subprocess.Popen(
        [sys.executable, "-m", "aliquot", *words, *folders, "--sim", node.name],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ.copy(),
    )
    deadline = time.monotonic() + 30
    while not any(c["call"] == "GpuInstanceDestroy" for c in node.calls()[calls:]):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number, err
    assert "stopped[INTERRUPTED]" in err
    assert placements(node) == before
    assert not (tmp_path / "gres.conf").exists()
