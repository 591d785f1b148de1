"""The driver's own programs: ``sriov-manage``, where the driver's root directory has it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Protocol

from aliquot.backends.whole import whole

PROGRAM = "/usr/lib/nvidia/sriov-manage"
TIMEOUT_S = 180.0
_TIMED_OUT = 124
_KILLED_S = 5.0
"""How long it is waited for after SIGKILL: inside the kernel it may hang on."""


class Tools(Protocol):
    """What runs them. ``sriov_manage`` is the program's path as it is shown; empty where there is none."""

    @property
    def sriov_manage(self) -> str: ...

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        """Switch a GPU's virtual functions: exit status and what was said. An interrupt from the keyboard waits for
        its end.
        """
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

    @property
    def sriov_manage(self) -> str:
        """Looked for each time: a driver container may come after us, or again."""
        path = self._root + PROGRAM
        return path if os.access(path, os.X_OK) else ""

    def manage(self, pci: str, on: bool) -> tuple[int, str]:
        way_in = ["chroot", self._root, PROGRAM] if self._chroot else [self.sriov_manage]
        with whole():
            return _run([*way_in, "-e" if on else "-d", pci], self._timeout_s)


def _run(command: list[str], timeout_s: float) -> tuple[int, str]:
    """Its status and words; others where it cannot be run, or does not end."""
    import signal
    import subprocess

    try:
        # A session of its own: Ctrl-C would end it between unbinding the GPU and binding it again.
        started = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C"},
            start_new_session=True,
        )
    except OSError as failure:
        return 127, f"it cannot be run: {failure.strerror}"
    try:
        out, err = started.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            started.wait(_KILLED_S)
        for pipe in filter(None, (started.stdout, started.stderr)):
            pipe.close()
        return _TIMED_OUT, f"it did not end within {timeout_s:.0f} s"
    return started.returncode, out + err
