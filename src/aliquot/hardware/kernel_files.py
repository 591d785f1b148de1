"""The kernel's files as a port: ``/sys``, ``/proc`` and ``/dev`` of this host, of a tree below a directory, or of a
simulated node. All access to sysfs uses this port, so that the same code runs on all of them.
"""

from __future__ import annotations

import errno
import os
from typing import Protocol

from aliquot.foundation.driver_calls import SLOW_WRITE_S, DriverCall

_NO_DISK = (errno.ENOENT, errno.ENXIO, errno.ENODEV, errno.ENOMEDIUM)


class KernelFiles(Protocol):
    """Access by absolute paths as the kernel shows them (``/sys/bus/pci/devices/0000:08:00.0/driver``).

    Symbolic links are followed, except for the last part in ``link``. Every method raises OSError with the kernel's
    errno.
    """

    def read(self, path: str) -> str:
        """Return the text of an attribute without its final newline."""
        ...

    def write(self, path: str, text: str) -> None:
        """Write the text in one call, like ``echo -n``. Raises OSError if the kernel refuses."""
        ...

    def names(self, path: str) -> tuple[str, ...]:
        """Return the entries of a directory, in any order."""
        ...

    def link(self, path: str) -> str:
        """Return the target of a symbolic link as it is stored."""
        ...

    def real(self, path: str) -> str:
        """Return the path with all symbolic links resolved."""
        ...

    def exists(self, path: str) -> bool: ...

    def claimed(self, path: str) -> bool:
        """Report whether a block device is open exclusively: by a mount, swap, LVM, ZFS or a program. False without
        such a device, or without a medium in it. The question itself opens it exclusively, for microseconds.
        """
        ...


class RealFiles:
    """The host's own files, or those below ``root``."""

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

    def claimed(self, path: str) -> bool:
        with DriverCall(f"open {path}"):
            try:
                os.close(os.open(self.root + path, os.O_RDONLY | os.O_EXCL | os.O_NONBLOCK | os.O_CLOEXEC))
            except OSError as failure:
                if failure.errno != errno.EBUSY and failure.errno not in _NO_DISK:
                    raise
                return failure.errno == errno.EBUSY
        return False
