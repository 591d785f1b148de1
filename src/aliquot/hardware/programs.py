"""Programs of a driver whose files are on this machine, at ``/`` or below another root."""

from __future__ import annotations

import os
from collections.abc import Sequence

from aliquot.core.engine.programs import ProgramResult
from aliquot.errors import HardwareError
from aliquot.foundation.driver_calls import DriverCall

_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "usr/local/nvidia/bin")


class LocalPrograms:
    """Implements ``Programs``. With ``chroot`` they see ``root`` as ``/``: those of a driver container find their
    libraries there. Without it their files are started from here. A program that is not there ends with status 127, as
    in a shell.
    """

    def __init__(self, root: str = "/", *, chroot: bool = False) -> None:
        self._root = root.rstrip("/")
        self._chroot = chroot and self._root != ""

    @property
    def location(self) -> str:
        return f"root {self._root}" if self._root else "this machine"

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult:
        """Raises HardwareError after ``timeout_s``."""
        name, *arguments = command
        path = self._path(name)
        if path is None:
            return ProgramResult(127, err=f"{name} is not there")
        words = [*(["chroot", self._root, path] if self._chroot else [self._root + path]), *arguments]
        try:
            return run_to_end(words, timeout_s)
        except TimeoutError as timeout:
            raise HardwareError(
                f"{name} did not end within {timeout_s:.0f} s ({self.location})",
                details=(" ".join(words),),
                next_step="look for Xid messages in the kernel log (dmesg | grep -i xid), then run: aliquot show",
            ) from timeout
        except OSError as failure:
            return ProgramResult(126, err=f"{name} cannot be run: {failure.strerror}")

    def _path(self, word: str) -> str | None:
        """The program's absolute path below the root."""
        candidates = (word,) if word.startswith("/") else tuple(f"/{folder}/{word}" for folder in _FOLDERS)
        return next((path for path in candidates if os.access(self._root + path, os.X_OK)), None)


def run_to_end(words: Sequence[str], timeout_s: float, *, gpu: str = "") -> ProgramResult:
    """Run a program of the driver to its end, its words in English. A signal ends it: whatever changes something runs
    it inside ``signals.whole``. ``gpu`` is the PCI address that it works on. Raises TimeoutError after ``timeout_s``,
    when it was killed; OSError where it cannot be started.
    """
    from aliquot.foundation import bounded_process  # a command that runs no program does not pay for it

    with DriverCall(" ".join(words), gpu, timeout_s + bounded_process.KILLED_S):
        try:
            return ProgramResult(*bounded_process.run(words, timeout_s, env={**os.environ, "LC_ALL": "C"}))
        except TimeoutError as timeout:
            raise TimeoutError(f"it did not end within {timeout_s:.0f} s") from timeout
