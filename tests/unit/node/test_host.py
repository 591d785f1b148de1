"""The real reset's command line and its refusals, against a recording stub; the end of processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from aliquot.core.engine.ports import HostControl
from aliquot.core.engine.programs import ProgramResult
from aliquot.errors import (
    AliquotError,
    GpuLostError,
    HardwareError,
    InUseError,
    NoDriverError,
    PermissionDeniedError,
)
from aliquot.foundation import signals
from aliquot.hardware.host import LocalHost

PCI = "0000:07:00.0"


def stub(tmp_path: Path, says: str, status: int) -> str:
    """Write an nvidia-smi that records its arguments, prints a text and exits with a status."""
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\necho \"$@\" >> {tmp_path}/arguments\ncat <<'END'\n{says}\nEND\nexit {status}\n")
    program.chmod(0o755)
    return str(program)


def test_resets_that_gpu_only(tmp_path: Path) -> None:
    host: HostControl = LocalHost(stub(tmp_path, f"GPU 0000{PCI} was successfully reset.\nAll done.", 0))
    host.reset(PCI)
    assert (tmp_path / "arguments").read_text() == f"-r -i {PCI}\n"


@pytest.mark.parametrize(
    ("says", "status", "kind"),
    [
        (f"The following GPUs could not be reset:\n  GPU 0000{PCI}: In use by another client", 255, InUseError),
        (f"GPU {PCI} is currently being used by one or more other processes", 1, InUseError),
        (f"GPU 0000{PCI}: Insufficient Permissions", 4, PermissionDeniedError),
        (f"GPU 0000{PCI}: Not Supported", 3, HardwareError),
        (f"Unable to determine the device handle for GPU {PCI}: GPU is lost. Reboot to recover.", 15, GpuLostError),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, NoDriverError),
        ("an unknown sentence of it", 255, HardwareError),
        ("", 1, HardwareError),
    ],
)
def test_each_refusal_is_one_clear_error(tmp_path: Path, says: str, status: int, kind: type[AliquotError]) -> None:
    with pytest.raises(AliquotError) as caught:
        LocalHost(stub(tmp_path, says, status)).reset(PCI)
    assert type(caught.value) is kind
    assert PCI in caught.value.brief
    assert caught.value.next_step
    assert [line.strip() for line in says.splitlines()] == list(caught.value.details[2:])


def test_resets_inside_the_root_where_the_driver_lives(tmp_path: Path) -> None:
    # The test uses the real chroot if it may. Otherwise the refusal names the program or the root.
    root = tmp_path / "root"
    (root / "bin").mkdir(parents=True)
    with pytest.raises(HardwareError) as caught:
        LocalHost("/bin/no-such-nvidia-smi", root=str(root)).reset(PCI)
    assert any("no-such-nvidia-smi" in line or "chroot" in line for line in caught.value.details)


def test_a_signal_waits_for_the_end_of_a_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def run(*words: object, **more: object) -> ProgramResult:
        seen.append(signals.changing())
        return ProgramResult(0)

    monkeypatch.setattr("aliquot.hardware.host.run_to_end", run)
    LocalHost().reset(PCI)
    assert seen == [True]


def test_without_nvidia_smi(tmp_path: Path) -> None:
    with pytest.raises(HardwareError) as caught:
        LocalHost(str(tmp_path / "none")).reset(PCI)
    assert "none" in caught.value.brief


def child(ignores_term: bool) -> subprocess.Popen[bytes]:
    body = "signal.signal(15, signal.SIG_IGN)" if ignores_term else "pass"
    program = f"import signal, sys, time; {body}; sys.stdout.write('x'); sys.stdout.flush(); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(1) == b"x"
    return process


@pytest.mark.parametrize(("ignores_term", "end"), [(False, signal.SIGTERM), (True, signal.SIGKILL)])
def test_asks_first_then_does_not(ignores_term: bool, end: signal.Signals) -> None:
    with child(ignores_term) as process:
        began = time.monotonic()
        LocalHost(grace_s=0.3).terminate(process.pid)
        assert time.monotonic() - began < 5
        assert process.wait() == -end


def test_a_process_that_is_gone_is_fine() -> None:
    with child(False) as process:
        process.kill()
        process.wait()
    LocalHost().terminate(process.pid)


def test_a_process_of_another_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", refuse)
    with pytest.raises(PermissionDeniedError):
        LocalHost().terminate(os.getpid())
