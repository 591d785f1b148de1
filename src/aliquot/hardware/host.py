"""The local host: the reset of one GPU, the end of a process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from aliquot.core.model import nvml_return_codes as codes
from aliquot.errors import AliquotError, HardwareError, PermissionDeniedError
from aliquot.foundation.backoff import Backoff
from aliquot.foundation.signals import uninterrupted
from aliquot.hardware.programs import run_to_end

RESET_TIMEOUT_S = 120.0
GRACE_S = 10.0
_KILL_WAIT_S = 30.0
_END_POLL = Backoff(first=0.005, longest=0.1)

_REFUSALS: tuple[tuple[str, int], ...] = (
    ("in use by another client", codes.IN_USE),
    ("being used by", codes.IN_USE),
    ("insufficient permissions", codes.NO_PERMISSION),
    ("gpu is lost", codes.GPU_IS_LOST),
    ("not supported", codes.RESET_TYPE_NOT_SUPPORTED),
    ("not found", codes.NOT_FOUND),
    ("no devices were found", codes.NOT_FOUND),
    ("couldn't communicate with the nvidia driver", codes.DRIVER_NOT_LOADED),
)
"""Phrases in nvidia-smi's refusal of a reset, and their NVML codes."""


class LocalHost:
    """The local host. ``nvidia_smi`` is the program that resets a GPU, because NVML has no call for it. ``root`` is the
    program's root directory: ``/``, that of a driver container, or that of the host if this process runs in a
    container.
    """

    def __init__(self, nvidia_smi: str = "nvidia-smi", *, root: str = "/", grace_s: float = GRACE_S) -> None:
        self.nvidia_smi = nvidia_smi
        self.grace_s = grace_s
        self._chroot_command = () if root == "/" else ("chroot", root)

    def reset(self, pci: str) -> None:
        attempt = f"resetting GPU {pci}"
        try:
            with uninterrupted():
                result = run_to_end([*self._chroot_command, self.nvidia_smi, "-r", "-i", pci], RESET_TIMEOUT_S, gpu=pci)
        except TimeoutError as failure:
            raise HardwareError(
                f"{attempt} did not end within {RESET_TIMEOUT_S:.0f} s", next_step="aliquot show"
            ) from failure
        except OSError as failure:
            raise HardwareError(
                f"{attempt} failed: {self.nvidia_smi} cannot be run ({failure.strerror})",
                next_step="install nvidia-smi, which comes with the driver, or reboot the node",
            ) from failure
        output = (result.out + result.err).strip()
        if result.status:
            raise reset_error(attempt, pci, result.status, output)

    def terminate(self, pid: int) -> None:
        start_time = _start_time(pid)
        for number, wait_s in ((signal.SIGTERM, self.grace_s), (signal.SIGKILL, _KILL_WAIT_S)):
            try:
                if _start_time(pid) == start_time:
                    os.kill(pid, number)
            except ProcessLookupError:
                return
            except PermissionError as failure:
                raise PermissionDeniedError(
                    f"process {pid} belongs to another user and cannot be ended", next_step="run it as root"
                ) from failure
            if _wait(lambda: start_time is None or _start_time(pid) != start_time, wait_s):
                return
        raise HardwareError(
            f"process {pid} does not end, even after SIGKILL: it hangs inside the kernel", next_step="reboot the node"
        )


def reset_error(attempt: str, pci: str, status: int, output: str) -> AliquotError:
    """Return the error for a reset that nvidia-smi refused, from its exit status and output."""
    words = output.lower()
    code = next((code for phrase, code in _REFUSALS if phrase in words), status if status in codes.TABLE else None)
    error = codes.error(code or codes.UNKNOWN, attempt, gpu=pci)
    lines = tuple(line.strip() for line in output.splitlines() if line.strip())
    error.details = (*error.details, f"nvidia-smi ended with status {status}", *lines[:8])
    return error


def _start_time(pid: int) -> str | None:
    """Return when a process started, in clock ticks, which distinguishes it from a later process with the same pid.
    None if it has ended. A zombie counts as ended, because its open devices are closed.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode()


def _wait(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    polls = 0
    while not condition():
        if time.monotonic() > deadline:
            return False
        polls += 1
        time.sleep(_END_POLL.pause(polls))
    return True
