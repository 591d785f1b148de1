"""``aliquot sim tools``, ``mount`` and ``umount``: a simulated node for programs that do not know Aliquot."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from system.sim.mounted import missing

from .conftest import Run


def test_the_drivers_programs_are_found_on_the_path(run: Run, state: str) -> None:
    run("sim", "start", "a30", "--name", "one")
    folder = run("sim", "tools").out.strip()
    assert run("sim", "tools", "-o", "json").document["path"] == folder
    found = subprocess.run(
        ["nvidia-smi", "-L"],
        env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert found.stdout.startswith("GPU 0: NVIDIA A30 (UUID: GPU-")
    assert not os.path.exists(f"{folder}/../lib/nvidia/sriov-manage"), "an ordinary driver has no such program"
    run("sim", "reboot", "--kernel", "vfio")
    assert os.access(f"{folder}/../lib/nvidia/sriov-manage", os.X_OK)


def test_a_node_on_a_folder(run: Run, state: str, tmp_path: Path) -> None:
    if reason := missing():
        pytest.skip(reason)
    run("sim", "start", "a2:mdev", "--name", "one")
    folder = tmp_path / "here"
    absent = run("sim", "mount", str(folder))
    assert (absent.code, f"mkdir {folder}" in absent.err) == (2, True)
    folder.mkdir()
    reported = run("sim", "mount", str(folder), "-o", "json").document
    assert (reported["node"], reported["folder"]) == ("one", str(folder))
    assert (folder / "sys/bus/pci/devices/0000:01:00.0/vendor").read_text() == "0x10de\n"
    assert run("sim", "mount", str(folder)).code == 2
    assert run("sim", "umount", str(folder)).out == f"one is no longer mounted on {folder}\n"
    assert run("sim", "umount", str(folder)).code == 20
    assert list(folder.iterdir()) == []
