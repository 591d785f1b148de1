"""The driver's own programs: ``sriov-manage``, if the driver's root directory contains it."""

from __future__ import annotations

import os
from typing import Protocol

from aliquot.foundation.signals import uninterrupted
from aliquot.hardware.programs import run_to_end

PROGRAM = "/usr/lib/nvidia/sriov-manage"
TIMEOUT_S = 180.0
_TIMED_OUT, _CANNOT_RUN = 124, 127


class Tools(Protocol):
    """A runner of the driver's programs. ``sriov_manage`` is the program's path for messages, "" if
    it does not exist.
    """

    @property
    def sriov_manage(self) -> str: ...

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        """Enable or disable a GPU's virtual functions. Return the exit status and the output. A keyboard interrupt
        waits until the program ends.
        """
        ...


class NoTools:
    """A driver without programs."""

    sriov_manage = ""

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        return 127, "sriov-manage was not found"


class DriverTools:
    """The programs below ``root``. With ``chroot`` that directory is their ``/``, so that the programs of a driver
    container find their libraries and the daemons' sockets.
    """

    def __init__(self, root: str = "/", *, chroot: bool = False, timeout_s: float = TIMEOUT_S) -> None:
        self._root = root.rstrip("/")
        self._chroot = chroot and self._root != ""
        self._timeout_s = timeout_s

    @property
    def sriov_manage(self) -> str:
        """Return the program's path. It is looked up each time, because a driver container may start after us, or
        again.
        """
        path = self._root + PROGRAM
        return path if os.access(path, os.X_OK) else ""

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        """Run the program. Returns other statuses if it cannot be run or does not end."""
        command = ["chroot", self._root, PROGRAM] if self._chroot else [self.sriov_manage]
        try:
            with uninterrupted():
                result = run_to_end([*command, "-e" if on else "-d", pci], self._timeout_s)
        except TimeoutError as timeout:
            return _TIMED_OUT, str(timeout)
        except OSError as failure:
            return _CANNOT_RUN, f"it cannot be run: {failure.strerror}"
        return result.status, result.out + result.err
