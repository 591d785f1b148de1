"""Programs below a root, nvidia-smi's refusals as Aliquot's errors, and sriov-manage through the port."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest

from aliquot.core.engine.programs import ProgramResult
from aliquot.core.model import nvml_return_codes as codes
from aliquot.errors import (
    AliquotError,
    GpuLostError,
    HardwareError,
    InUseError,
    NoDriverError,
    PermissionDeniedError,
)
from aliquot.foundation import signals
from aliquot.hardware.kernel.sriov_manage import PROGRAM
from aliquot.hardware.nvidia_smi.backend import SmiBackend
from aliquot.hardware.nvidia_smi.command import Smi, code_of
from aliquot.hardware.nvidia_smi.host import ProgramTools, SmiHost
from aliquot.hardware.nvidia_smi.reader import SmiReader
from aliquot.hardware.programs import LocalPrograms
from support.processes import ended, until


class Scripted:
    """An environment with one answer for each command, which records the commands."""

    location = "pod harvester-system/nvidia-driver-x"

    def __init__(self, *answers: ProgramResult | AliquotError) -> None:
        self.answers = list(answers)
        self.commands: list[tuple[str, ...]] = []

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult:
        self.commands.append(tuple(command))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, AliquotError):
            raise answer
        return answer


def script(root: Path, path: str, text: str) -> None:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def test_programs_are_found_below_the_root(tmp_path: Path) -> None:
    script(tmp_path, "usr/bin/nvidia-smi", 'echo "$@"; echo oops >&2; echo $LC_ALL; exit 3')
    script(tmp_path, PROGRAM, "echo absolute")
    programs = LocalPrograms(str(tmp_path))
    ran = programs.run(("nvidia-smi", "mig", "-i", "a b"), 10)
    assert (ran.status, ran.out, ran.err) == (3, "mig -i a b\nC\n", "oops\n")
    assert programs.run((PROGRAM, "-h"), 10).out == "absolute\n"
    missing = programs.run(("nvidia-debugdump",), 10)
    assert (missing.status, missing.output) == (127, "nvidia-debugdump was not found")
    assert programs.location == f"root {tmp_path}"
    assert LocalPrograms().location == "this host"


def test_a_program_of_another_machine_cannot_be_run(tmp_path: Path) -> None:
    file = tmp_path / "usr/bin/nvidia-smi"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"\x7fELF of no machine")
    file.chmod(0o755)
    ran = LocalPrograms(str(tmp_path)).run(("nvidia-smi",), 10)
    assert (ran.status, ran.err) == (126, "nvidia-smi cannot be run: Exec format error")


def test_a_program_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    script(tmp_path, "usr/bin/nvidia-smi", f"sleep 60 & echo $! > {tmp_path}/pid; wait")
    with pytest.raises(HardwareError, match="nvidia-smi did not end within 1 s") as caught:
        LocalPrograms(str(tmp_path)).run(("nvidia-smi", "-q"), 1)
    assert caught.value.next_step
    pid = int((tmp_path / "pid").read_text())
    until(lambda: ended(pid))


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot requires root")
def test_inside_a_root_its_paths_are_the_programs_own(tmp_path: Path) -> None:
    ran = LocalPrograms(str(tmp_path), chroot=True).run((PROGRAM, "-h"), 10)
    assert ran.status == 127
    script(tmp_path, PROGRAM, "echo never: this root has no shell")
    ran = LocalPrograms(str(tmp_path), chroot=True).run((PROGRAM, "-h"), 10)
    assert ran.status == 127, "the interpreter of its first line is searched inside as well"
    assert "chroot" in ran.err


@pytest.mark.parametrize(
    ("status", "output", "kind", "code"),
    [
        (19, "Unable to destroy GPU instance ID  1 from GPU  0: In use by another client", InUseError, codes.IN_USE),
        (15, "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost.", GpuLostError, 15),
        (4, "Unable to create a GPU instance on GPU  0: Insufficient Permissions", PermissionDeniedError, 4),
        (23, "Failed to create GPU instances: Insufficient Resources", HardwareError, 23),
        (6, "No MIG-enabled devices found.", HardwareError, codes.NOT_SUPPORTED),
        (9, "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", NoDriverError, 9),
        (18, "Failed to initialize NVML: Driver/library version mismatch", NoDriverError, 18),
        (12, "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", NoDriverError, 12),
        (255, "an unknown sentence of it", HardwareError, codes.UNKNOWN),
        (-9, "", HardwareError, codes.UNKNOWN),
        (10, "", HardwareError, codes.TIMEOUT),
    ],
)
def test_refusals_become_errors_that_name_the_place(
    status: int, output: str, kind: type[AliquotError], code: int
) -> None:
    smi = Smi(Scripted(ProgramResult(status, output)))
    with pytest.raises(kind) as caught:
        smi.run_checked("cutting 0000:01:00.0", "mig", "-lgi", gpu="0000:01:00.0")
    assert code_of(ProgramResult(status, output)) == code
    assert caught.value.brief.startswith("cutting 0000:01:00.0 failed: ")
    where = f"nvidia-smi mig -lgi ended with status {status} (pod harvester-system/nvidia-driver-x)"
    assert where in caught.value.details
    assert not output or caught.value.details[-1] == output
    assert caught.value.next_step


def test_no_nvidia_smi_is_no_driver() -> None:
    with pytest.raises(NoDriverError, match=r"nvidia-smi was not found \(pod harvester-system/nvidia-driver-x\)"):
        Smi(Scripted(ProgramResult(127))).run("-q")


def test_only_nothing_to_list_is_an_empty_list() -> None:
    for answer in ("No GPU instances found: Not Found", "No MIG-enabled devices found."):
        assert Smi(Scripted(ProgramResult(6, answer))).run_listing("listing", "mig", "-lgi") == ""
    with pytest.raises(HardwareError):
        Smi(Scripted(ProgramResult(6, "No devices were found"))).run_listing("listing", "mig", "-lgi")


def test_sriov_manage_is_looked_for_until_it_is_found() -> None:
    programs = Scripted(ProgramResult(127), NoDriverError("the pod is gone"), ProgramResult(0, "Usage:"))
    tools = ProgramTools(programs)
    assert [tools.sriov_manage for _ in range(4)] == ["", "", PROGRAM, PROGRAM]
    assert programs.commands == [(PROGRAM, "-h")] * 3


def test_sriov_manage_through_the_port() -> None:
    programs = Scripted(ProgramResult(1, "Enabling VFs on 0000:08:00.0", "Cannot obtain unbindLock for 0000:08:00.0"))
    status, answer = ProgramTools(programs).manage("0000:08:00.0", True)
    assert (status, answer) == (1, "Enabling VFs on 0000:08:00.0\nCannot obtain unbindLock for 0000:08:00.0")
    assert ProgramTools(programs).manage("0000:08:00.0", False)[0] == 1
    assert programs.commands == [(PROGRAM, "-e", "0000:08:00.0"), (PROGRAM, "-d", "0000:08:00.0")]
    gone = ProgramTools(Scripted(NoDriverError("the pod is gone")))
    with pytest.raises(NoDriverError):
        gone.manage("0000:08:00.0", True)


def test_a_reset_is_asked_for_where_the_driver_is() -> None:
    programs = Scripted(ProgramResult(0, "GPU 00000000:01:00.0 was successfully reset."))
    SmiHost(programs).reset("0000:01:00.0")
    assert programs.commands == [("nvidia-smi", "-r", "-i", "0000:01:00.0")]
    refused = "The following GPUs could not be reset:\n  GPU 00000000:01:00.0: In use by another client"
    with pytest.raises(InUseError):
        SmiHost(Scripted(ProgramResult(255, refused))).reset("0000:01:00.0")


def backend(programs: Watched) -> SmiBackend:
    made = SmiBackend.__new__(SmiBackend)
    made._smi, made._reader, made._mixed_sizes = Smi(programs), cast(SmiReader, None), {}
    return made


class Watched(Scripted):
    """Records for each command whether a signal may interrupt it."""

    def __init__(self) -> None:
        super().__init__(ProgramResult(1, "unknown error"))
        self.whole: list[bool] = []

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult:
        self.whole.append(signals.changing())
        return super().run(command, timeout_s)


GPU = "0000:07:00.0"
READS: list[Callable[[Watched], object]] = [
    lambda programs: Smi(programs).run_checked("reading", "-q"),
    lambda programs: Smi(programs).run_listing("listing", "mig", "-lgi"),
    lambda programs: ProgramTools(programs).sriov_manage,
]
CHANGES: list[Callable[[Watched], object]] = [
    lambda programs: SmiHost(programs).reset(GPU),
    lambda programs: ProgramTools(programs).manage(GPU, True),
    lambda programs: backend(programs).set_mode(GPU, True),
    lambda programs: backend(programs).set_mixed_size(GPU, True),
    lambda programs: backend(programs).create_gpu_instance(GPU, 19, 0, 1),
    lambda programs: backend(programs).destroy_compute_instance(GPU, 1, 0),
]


@pytest.mark.parametrize(("call", "whole"), [*((each, False) for each in READS), *((each, True) for each in CHANGES)])
def test_a_signal_waits_for_a_program_that_changes_something_and_for_no_other(
    call: Callable[[Watched], object], whole: bool
) -> None:
    programs = Watched()
    with suppress(AliquotError):
        call(programs)
    assert programs.whole == [whole]


def test_a_program_that_reads_is_ended_by_the_first_signal(tmp_path: Path) -> None:
    script(tmp_path, "usr/bin/nvidia-smi", f"echo $$ > {tmp_path}/begun; exec sleep 60")
    body = (
        "from aliquot.foundation.signals import Stopped, interruptible\n"
        "from aliquot.hardware.programs import LocalPrograms\n"
        "try:\n"
        "    with interruptible():\n"
        f"        LocalPrograms({str(tmp_path)!r}).run(('nvidia-smi', '-q'), 60)\n"
        "except Stopped as stopped:\n"
        "    raise SystemExit(128 + stopped.number)\n"
    )
    ours = subprocess.Popen([sys.executable, "-c", body])
    begun = tmp_path / "begun"
    until(lambda: begun.exists() and begun.read_text().strip())
    try:
        ours.send_signal(signal.SIGTERM)
        assert ours.wait(5) == 143
    finally:
        ours.kill()
    until(lambda: ended(int(begun.read_text())), "the program ends with it")
