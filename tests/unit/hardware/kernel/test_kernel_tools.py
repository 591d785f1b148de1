"""Running the driver's own program: status, output, timeout, another root."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aliquot.hardware.kernel.sriov_manage import PROGRAM, DriverTools, NoTools

PCI = "0000:08:00.0"


def program(root: Path, body: str, mode: int = 0o755) -> Path:
    path = root / PROGRAM.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(mode)
    return path


def test_what_it_says_and_how_it_ends(tmp_path: Path) -> None:
    path = program(tmp_path, 'echo "Enabling VFs on $2 ($1)"; echo oops >&2; exit 3')
    tools = DriverTools(str(tmp_path))
    assert tools.sriov_manage == str(path)
    assert tools.manage(PCI, True) == (3, f"Enabling VFs on {PCI} (-e)\noops\n")
    assert "(-d)" in tools.manage(PCI, False)[1]


def test_where_there_is_none(tmp_path: Path) -> None:
    early = DriverTools(str(tmp_path))
    assert early.sriov_manage == ""
    path = program(tmp_path, "exit 0", mode=0o644)
    assert DriverTools(str(tmp_path)).sriov_manage == "", "not executable"
    path.chmod(0o755)
    assert early.sriov_manage == str(path), "a driver container started later"
    assert NoTools().manage(PCI, True)[0] != 0


def test_a_program_that_hangs(tmp_path: Path) -> None:
    program(tmp_path, "exec sleep 30")
    status, answer = DriverTools(str(tmp_path), timeout_s=0.2).manage(PCI, True)
    assert status != 0
    assert "did not end" in answer


def test_a_program_that_cannot_be_run(tmp_path: Path) -> None:
    path = program(tmp_path, "")
    path.write_text("#!/nowhere/sh\n")
    status, answer = DriverTools(str(tmp_path)).manage(PCI, True)
    assert status != 0
    assert "cannot be run" in answer


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_in_the_root_of_a_driver_container(tmp_path: Path) -> None:
    # It sees its own files as /: that root contains no shell, so a static one is the program itself.
    import shutil

    busybox = shutil.which("busybox")
    if busybox is None:
        pytest.skip("no busybox: nothing static to run in a bare root")
    path = tmp_path / PROGRAM.lstrip("/")
    path.parent.mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    shutil.copy(busybox, tmp_path / "bin/sh")
    path.write_text("#!/bin/sh\necho in $(pwd) with $*\n")
    path.chmod(0o755)
    status, answer = DriverTools(str(tmp_path), chroot=True).manage(PCI, True)
    assert (status, answer) == (0, f"in / with -e {PCI}\n")


def test_an_interrupt_from_the_keyboard_waits_for_its_end(tmp_path: Path) -> None:
    # Ctrl-C reaches every process of the terminal. An interrupt between unbind and bind would leave the GPU without a
    # driver.
    program(tmp_path, f"echo begun > {tmp_path}/begun; sleep 1; echo bound > {tmp_path}/bound")
    body = (
        "from aliquot.hardware.kernel.sriov_manage import DriverTools\n"
        "try:\n"
        f"    DriverTools({str(tmp_path)!r}).manage({PCI!r}, True)\n"
        "except KeyboardInterrupt:\n"
        "    raise SystemExit(7)\n"
    )
    ours = subprocess.Popen([sys.executable, "-c", body], start_new_session=True)
    deadline = time.monotonic() + 20
    while not (tmp_path / "begun").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    for _ in range(2):
        os.killpg(ours.pid, signal.SIGINT)
        time.sleep(0.1)
    assert ours.wait(20) == 7, "the interrupt is reported after it"
    assert (tmp_path / "bound").exists()
