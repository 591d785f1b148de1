"""Programs of a driver whose files are on this machine, at ``/`` or below another root."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress

from aliquot.backends.programs import Ran
from aliquot.backends.whole import whole
from aliquot.errors import HardwareError

_FOLDERS = ("usr/bin", "usr/sbin", "bin", "sbin", "usr/local/bin", "usr/local/nvidia/bin")
_KILLED_S = 5.0
"""How long a program is waited for after SIGKILL: inside the kernel it may hang on."""


class LocalPrograms:
    """Implements ``Programs``. With ``chroot`` they see ``root`` as ``/``: those of a driver container find their
    libraries there. Without it their files are started from here. A program that is not there ends with status 127, as
    in a shell.
    """

    def __init__(self, root: str = "/", *, chroot: bool = False) -> None:
        self._root = root.rstrip("/")
        self._chroot = chroot and self._root != ""

    @property
    def place(self) -> str:
        return f"root {self._root}" if self._root else "this machine"

    def run(self, command: Sequence[str], timeout_s: float) -> Ran:
        """Ctrl-C waits for the end: a program that switches a GPU must not stop half-way. Raises HardwareError after
        ``timeout_s``.
        """
        path = self._path(command[0])
        if path is None:
            return Ran(127, err=f"{command[0]} is not there")
        way_in = ["chroot", self._root, path] if self._chroot else [self._root + path]
        with whole():
            return self._run([*way_in, *command[1:]], command[0], timeout_s)

    def _path(self, word: str) -> str | None:
        """The program's absolute path below the root."""
        candidates = (word,) if word.startswith("/") else tuple(f"/{folder}/{word}" for folder in _FOLDERS)
        return next((path for path in candidates if os.access(self._root + path, os.X_OK)), None)

    def _run(self, words: list[str], name: str, timeout_s: float) -> Ran:
        try:
            started = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env={**os.environ, "LC_ALL": "C"},
                start_new_session=True,
            )
        except OSError as failure:
            return Ran(126, err=f"{name} cannot be run: {failure.strerror}")
        try:
            out, err = started.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as late:
            _end(started)
            raise HardwareError(
                f"{name} did not end within {timeout_s:.0f} s ({self.place})",
                details=(" ".join(words),),
                next_step="look for Xid messages in the kernel log (dmesg | grep -i xid), then run: aliquot show",
            ) from late
        return Ran(started.returncode, out, err)


def _end(started: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        started.wait(_KILLED_S)
    for pipe in filter(None, (started.stdout, started.stderr)):
        pipe.close()
