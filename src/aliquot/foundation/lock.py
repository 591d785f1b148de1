"""One writer per node: a file held with flock, which the kernel frees whenever its holder ends, kill -9 included.

Ours: importing filelock takes 50 ms of CPU, this module 10, which also names the holder's command and pod.

Whoever can open a file can hold its lock, for reading, too: no lock of ours can be opened by anybody else.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.errors import LockedError
from aliquot.foundation import atomic_file


class FileLock:
    """The lock at ``path``. The file says who has it: pid, command and, on a second line, ``place`` (a pod); it stays
    behind, unlocked, afterwards. ``role`` is what its holder does, for the error of another process. ``identity`` is
    the device and inode of the file that was held last: a file that was removed and made again is another lock.
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
        """Hold the lock. Raises LockedError where another process has it, StorageError."""
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
        """Who holds it, for the one that finds it held. A full disk must not stop us here: the lock itself holds."""
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
    """Keep all other threads and processes from changing the file meanwhile. Raises StorageError."""
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
    """A file opened for locking that its owner alone can open; one that others could is closed to them."""
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
    """Who holds the lock at ``path``, as far as one may know: ``process 4711 (aliquot apply ...)``; empty while nobody
    does. It is looked up and never tried: even for an instant we must not be the one that an apply finds in its way.
    """
    try:
        status = os.stat(path)
        with open("/proc/locks") as file:
            lines = [line.split() for line in file]
    except OSError:
        return ""
    pid = _signature(path)[0]
    for words in lines:
        # "7: FLOCK  ADVISORY  WRITE 4711 00:1a:3301 0 EOF"; one that waits has an arrow in the second place.
        if len(words) < 6 or words[1] != "FLOCK" or words[5].rpartition(":")[2] != str(status.st_ino):
            continue
        major, minor = (int(part, 16) for part in words[5].split(":")[:2])
        # On some file systems stat tells another device than the kernel's list: who signed the file tells, too.
        if (major, minor) == (os.major(status.st_dev), os.minor(status.st_dev)) or words[4] == pid:
            return _holder(path)
    return ""


def since(path: str) -> float:
    """When the lock at ``path`` was last taken (seconds of wall time, of the clock that journals tell): its holder
    signs the file then, and nobody writes to it later. 0 where nobody can tell.
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
    """The pid, the command and the place that the file of a lock names, as far as this process may read it."""
    try:
        with open(path, "rb") as file:
            text, _, place = file.read(4096).decode(errors="replace").partition("\n")
    except OSError:
        return "", "", ""
    pid, _, command = text.strip().partition(" ")
    return (pid, command, place.strip()) if pid.isdigit() else ("", "", "")
