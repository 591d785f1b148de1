"""One writer per node: a file held with flock, which the kernel frees whenever its holder ends, kill -9 included.

Whoever can open a file can hold its lock, for reading, too: no lock of ours can be opened by anybody else.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import LockedError, PermissionDeniedError, StorageError


class FileLock:
    """The lock at ``path``. The file says who has it: pid and command; it stays behind, unlocked, afterwards."""

    def __init__(self, path: str) -> None:
        self.path = path

    @contextmanager
    def hold(self) -> Iterator[None]:
        file = self._open()
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as busy:
                raise self._locked(os.pread(file, 4096, 0)) from busy
            self._sign(file)
            yield
        finally:
            os.close(file)

    def _open(self) -> int:
        try:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o755, exist_ok=True)
            return private(self.path)
        except PermissionError as failure:
            raise PermissionDeniedError(
                f"the node's lock {self.path} cannot be taken: {failure.strerror}",
                next_step="run it as root, or as the owner of that folder",
            ) from failure
        except OSError as failure:
            raise StorageError(
                f"the node's lock {self.path} cannot be taken: {failure.strerror}",
                next_step=f"make {os.path.dirname(self.path)} writable, then run the command again",
            ) from failure

    def _sign(self, file: int) -> None:
        """Who holds it, for the one that finds it held. A full disk must not stop us here: the lock itself holds."""
        line = f"{os.getpid()} {_command()}\n".encode(errors="replace")
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, line, 0)
        except OSError:
            return

    def _locked(self, signature: bytes) -> LockedError:
        pid, _, command = signature.decode(errors="replace").strip().partition(" ")
        who = f"process {pid} ({command})" if pid.isdigit() else "another process"
        return LockedError(
            f"{who} is changing this node's GPUs",
            details=(f"lock: {self.path}",),
            next_step="wait for it to end, then run the command again",
        )


def private(path: str) -> int:
    """A file opened for locking that its owner alone can open; one that others could is closed to them."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(handle).st_mode & 0o077:
        os.fchmod(handle, 0o600)
    return handle


def _command() -> str:
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return file.read(2048).replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
