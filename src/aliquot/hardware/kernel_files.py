"""The kernel's files as a port: ``/sys``, ``/proc`` and ``/dev`` of this machine, of a tree below a folder, or of a
simulated node. Everything that reads or writes sysfs goes through it, so that one code runs over all of them.
"""

from __future__ import annotations

import os
from typing import Protocol

from aliquot.foundation.driver_calls import SLOW_WRITE_S, DriverCall


class KernelFiles(Protocol):
    """Absolute paths as the kernel shows them (``/sys/bus/pci/devices/0000:08:00.0/driver``). Symbolic links are
    followed, but for the last part in ``link``. Every method raises OSError with the kernel's own errno.
    """

    def read(self, path: str) -> str:
        """The text of an attribute, its final newline cut off."""
        ...

    def write(self, path: str, text: str) -> None:
        """One write of that text, as ``echo -n`` does it. The kernel's refusal is an OSError."""
        ...

    def names(self, path: str) -> tuple[str, ...]:
        """The entries of a folder, in no promised order."""
        ...

    def link(self, path: str) -> str:
        """Where a symbolic link points, as it is written there."""
        ...

    def real(self, path: str) -> str:
        """The path with every symbolic link resolved."""
        ...

    def exists(self, path: str) -> bool: ...


class RealFiles:
    """The machine's own files, or those below ``root``."""

    def __init__(self, root: str = "/") -> None:
        self.root = os.path.realpath(root).rstrip("/")

    def read(self, path: str) -> str:
        with DriverCall(f"read {path}"), open(self.root + path, encoding="utf-8", errors="replace") as stream:
            return stream.read().removesuffix("\n")

    def write(self, path: str, text: str) -> None:
        with DriverCall(f"write {path}", bound_s=SLOW_WRITE_S):
            descriptor = os.open(self.root + path, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(descriptor, text.encode())
            finally:
                os.close(descriptor)

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(os.listdir(self.root + path))

    def link(self, path: str) -> str:
        return os.readlink(self.root + path)

    def real(self, path: str) -> str:
        return os.path.realpath(self.root + path, strict=True).removeprefix(self.root) or "/"

    def exists(self, path: str) -> bool:
        return os.path.exists(self.root + path)
