"""The driver's own programs: ``sriov-manage``, where the driver's root directory has it."""

from __future__ import annotations

import os
from functools import cached_property
from typing import Protocol

PROGRAM = "/usr/lib/nvidia/sriov-manage"
TIMEOUT_S = 180.0
_TIMED_OUT = 124


class Tools(Protocol):
    """What runs them. ``sriov_manage`` is the program's path as it is shown; empty where there is none."""

    @property
    def sriov_manage(self) -> str: ...

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        """Switch a GPU's virtual functions: exit status and what was said. Raises nothing."""
        ...


class NoTools:
    """A driver without programs."""

    sriov_manage = ""

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        return 127, "there is no sriov-manage"


class DriverTools:
    """The programs below ``root``. With ``chroot`` they see that directory as ``/``: a driver container's programs
    find their libraries and the daemons' sockets there.
    """

    def __init__(self, root: str = "/", *, chroot: bool = False, timeout_s: float = TIMEOUT_S) -> None:
        self._root = root.rstrip("/")
        self._chroot = chroot and self._root != ""
        self._timeout_s = timeout_s

    @cached_property
    def sriov_manage(self) -> str:
        path = self._root + PROGRAM
        return path if os.access(path, os.X_OK) else ""

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        import subprocess

        way_in = ["chroot", self._root, PROGRAM] if self._chroot else [self.sriov_manage]
        try:
            done = subprocess.run(
                [*way_in, "-e" if on else "-d", pci],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self._timeout_s,
                env={**os.environ, "LC_ALL": "C"},
            )
        except subprocess.TimeoutExpired:
            return _TIMED_OUT, f"it did not end within {self._timeout_s:.0f} s"
        except OSError as failure:
            return 127, f"it cannot be run: {failure.strerror}"
        return done.returncode, done.stdout + done.stderr
