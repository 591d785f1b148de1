"""The lock that allows one writer per node: a file locked with flock, which the kernel releases when the holder ends,
even after kill -9.

Not filelock: importing it takes 50 ms of CPU, this module 10, and this one also names the holder's command and pod. Any
process that can open a file, even for reading, can hold its lock. Therefore only the owner can open these lock files.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import LockedError
from aliquot.foundation import atomic_file


class FileLock:
    """The lock at ``path``.

    The file names the holder: pid, command and, on a second line, ``place`` (a pod). It stays behind, unlocked,
    afterwards. ``role`` is what the holder does, for the error in another process. ``identity`` is the device and inode
    of the file that was held last: a file that was removed and created again is another lock.
    """

    def __init__(
        self,
        path: str,
        role: str = "is changing this node's GPUs",
        *,
        place: str = "",
        next_step: str = "wait for it to end, then run the command again",
    ) -> None:
        self.path = path
        self.identity = ""
        self._role = role
        self._place = place
        self._next_step = next_step

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Hold the lock. Raises LockedError if another process has it, and StorageError."""
        file = self._open()
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as busy:
                raise self._locked() from busy
            held = os.fstat(file)
            self.identity = f"{held.st_dev}:{held.st_ino}"
            self._sign(file)
            yield
        finally:
            os.close(file)

    def _open(self) -> int:
        try:
            os.makedirs(os.path.dirname(self.path) or ".", mode=0o755, exist_ok=True)
            return open_private(self.path)
        except OSError as failure:
            raise atomic_file.denied(f"the node's lock {self.path} cannot be taken", failure) from failure

    def _sign(self, file: int) -> None:
        """Write the holder into the file, for a process that finds the lock held. A full disk must not fail here,
        because the lock itself is held.
        """
        line = f"{os.getpid()} {_command()}\n{self._place}".encode(errors="replace")
        try:
            os.ftruncate(file, 0)
            os.pwrite(file, line, 0)
        except OSError:
            return

    def _locked(self) -> LockedError:
        who = _holder(self.path)
        details = (f"lock: {self.path}",)
        return LockedError(f"{who} {self._role}", details=details, next_step=self._next_step, holder=who)


@contextmanager
def exclusive(path: str) -> Iterator[None]:
    """Keep all other threads and processes from changing the file in this context. Raises StorageError."""
    try:
        os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
        handle = open_private(f"{path}.lock")
    except OSError as failure:
        raise atomic_file.denied(f"{path} cannot be written", failure) from failure
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def open_private(path: str) -> int:
    """Open a file for locking that only its owner can open. Permissions of other users are removed."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    if os.fstat(handle).st_mode & 0o077:
        os.fchmod(handle, 0o600)
    return handle


def _command() -> str:
    try:
        with open("/proc/self/cmdline", "rb") as file:
            return " ".join(file.read(2048).replace(b"\0", b" ").decode(errors="replace").split())
    except OSError:
        return ""


def holder(path: str) -> str:
    """Return the holder of the lock at ``path``: ``process 4711 (aliquot apply ...)``; empty if it is free or cannot be
    read. This reads ``/proc/locks`` and never tries the lock: even for an instant it must not block another process.
    """
    try:
        status = os.stat(path)
        with open("/proc/locks") as file:
            lines = [line.split() for line in file]
    except OSError:
        return ""
    pid = _signature(path)[0]
    for words in lines:
        # "7: FLOCK ADVISORY WRITE 4711 00:1a:3301 0 EOF"; a waiting process has an arrow in the second column.
        if len(words) < 6 or words[1] != "FLOCK" or words[5].rpartition(":")[2] != str(status.st_ino):
            continue
        major, minor = (int(part, 16) for part in words[5].split(":")[:2])
        # On some file systems stat reports another device than /proc/locks: then the pid in the file identifies the
        # lock.
        if (major, minor) == (os.major(status.st_dev), os.minor(status.st_dev)) or words[4] == pid:
            return _holder(path)
    return ""


def since(path: str) -> float:
    """Return when the lock at ``path`` was last taken, in seconds of wall time (the clock of the journals); 0 if
    unknown. The holder writes to the file when it takes the lock, and no process writes to it later.
    """
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def _holder(path: str) -> str:
    pid, command, place = _signature(path)
    who = f"process {pid}" + (f" ({command})" if command else "") if pid else "another process"
    return f"{who} of {place}" if place else who


def _signature(path: str) -> tuple[str, str, str]:
    """Return the pid, command and place in a lock file, empty if it cannot be read."""
    try:
        with open(path, "rb") as file:
            text, _, place = file.read(4096).decode(errors="replace").partition("\n")
    except OSError:
        return "", "", ""
    pid, _, command = text.strip().partition(" ")
    return (pid, command, place.strip()) if pid.isdigit() else ("", "", "")
