"""The programs of a driver whose files are on this host, at ``/`` or below another root."""

from __future__ import annotations

import os
from collections.abc import Sequence

from aliquot.core.engine.programs import ProgramResult
from aliquot.errors import HardwareError
from aliquot.foundation.driver_calls import DriverCall

_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "usr/local/nvidia/bin")


class LocalPrograms:
    """The implementation of ``Programs``. With ``chroot``, programs see ``root`` as ``/``, so that those of a driver
    container find their libraries. Without it their files are started from here. A missing program ends with status
    127, as in a shell.
    """

    def __init__(self, root: str = "/", *, chroot: bool = False) -> None:
        self._root = root.rstrip("/")
        self._chroot = chroot and self._root != ""

    @property
    def location(self) -> str:
        return f"root {self._root}" if self._root else "this host"

    def run(self, command: Sequence[str], timeout_s: float) -> ProgramResult:
        """Run a program to its end. Raises HardwareError after ``timeout_s`` seconds."""
        name, *arguments = command
        path = self._path(name)
        if path is None:
            return ProgramResult(127, err=f"{name} was not found")
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
        """Return the program's absolute path below the root."""
        candidates = (word,) if word.startswith("/") else tuple(f"/{folder}/{word}" for folder in _FOLDERS)
        return next((path for path in candidates if os.access(self._root + path, os.X_OK)), None)


def run_to_end(words: Sequence[str], timeout_s: float, *, gpu: str = "") -> ProgramResult:
    """Run a program of the driver to its end, with English output. A signal ends it, so callers that change something
    run it inside ``signals.uninterrupted``. ``gpu`` is the PCI address that it works on. Raises TimeoutError after
    ``timeout_s`` seconds, when it was killed, and OSError if it cannot be started.
    """
    from aliquot.foundation import bounded_process  # a command that runs no program does not pay for it

    with DriverCall(" ".join(words), gpu, timeout_s + bounded_process.KILLED_S):
        try:
            return ProgramResult(*bounded_process.run(words, timeout_s, env={**os.environ, "LC_ALL": "C"}))
        except TimeoutError as timeout:
            raise TimeoutError(f"it did not end within {timeout_s:.0f} s") from timeout
