"""The journal: what was about to be done, on disk before it is done. Append-only JSON lines, a checksum in each.

A line is ``<crc32 as 8 hex digits> <record as JSON>``. After a power loss the last line may be torn and, on a dying
disk, others may be bad: a line whose checksum is wrong is no record. Writing fails whole or not at all: a line that did
not fit on the disk is cut off again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from zlib import crc32

import msgspec

from aliquot.engine.ports import Record
from aliquot.errors import PermissionDeniedError, StorageError

BOOT_ID = "/proc/sys/kernel/random/boot_id"
ROTATE_AT = 1 << 20
KEEP_RUNS = 16

_NO_SPACE = "free space there, then run the command again"


def boot_id(path: str = BOOT_ID) -> str:
    """The kernel's id of this boot; empty where the kernel has none to tell."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


class _Line(msgspec.Struct):
    """A record as it is read: msgspec does not decode ``Raw | None``."""

    kind: str
    run: str
    boot: str = ""
    gpu: str = ""
    step: str = ""
    text: str = ""
    plan: msgspec.Raw = msgspec.Raw()
    before: msgspec.Raw = msgspec.Raw()


class FileJournal:
    """A journal in one file. ``boot`` is this boot's id (a simulated node has its own); threads may append at once."""

    def __init__(self, path: str, boot: str | None = None, *, rotate_at: int = ROTATE_AT) -> None:
        from threading import Lock

        self.path = path
        self._boot = boot_id() if boot is None else boot
        self._rotate_at = rotate_at
        self._lock = Lock()
        self._syncing = Lock()
        self._file = -1
        self._written = 0
        self._synced = 0
        self._lost: list[tuple[int, int, OSError]] = []

    @property
    def boot(self) -> str:
        return self._boot

    def new_run(self) -> str:
        """A fresh run id. The place where an over-long journal is cut down to its last runs: never within a run."""
        self._rotate()
        return os.urandom(6).hex()

    def append(self, record: Record, *, durable: bool) -> None:
        line = encode(record)
        with self._lock:
            file = self._open()
            try:
                size = os.fstat(file).st_size
                written = os.write(file, line)
                if written < len(line):
                    os.ftruncate(file, size)
                    raise OSError(28, "no space left on device")
            except OSError as failure:
                raise _storage(f"the journal {self.path} cannot be written", failure) from failure
            self._written += 1
            mine = self._written
        if durable:
            self._sync(mine)

    def _sync(self, mine: int) -> None:
        """Return when record ``mine`` is on disk. Raises StorageError if it is not.

        One fsync serves every lane that wrote before it began, so that eight lanes do not queue for eight of them. A
        failed one fails for all of these: the kernel tells it only once.
        """
        with self._syncing:
            if self._synced < mine:
                with self._lock:
                    covered, file = self._written, self._open()
                try:
                    os.fsync(file)
                except OSError as failure:
                    self._lost.append((self._synced, covered, failure))
                self._synced = covered
            for first, last, cause in self._lost:
                if first < mine <= last:
                    raise _storage(f"the journal {self.path} cannot be written", cause) from cause

    def records(self) -> Sequence[Record]:
        found = read(self.path)
        return [r for r in found if r.run == found[-1].run] if found else []

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        with self._syncing, self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1

    def _open(self) -> int:
        if self._file < 0:
            folder = os.path.dirname(self.path) or "."
            try:
                os.makedirs(folder, mode=0o755, exist_ok=True)
                new = not os.path.exists(self.path)
                self._file = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
                _end_torn_line(self._file)
                if new:
                    _sync_folder(folder)
            except OSError as failure:
                raise _storage(f"the journal {self.path} cannot be opened", failure) from failure
        return self._file

    def _rotate(self) -> None:
        try:
            if os.stat(self.path).st_size < self._rotate_at:
                return
        except OSError:
            return  # none yet; if it cannot be read, the first append says why
        found = read(self.path)
        last = list(dict.fromkeys(r.run for r in found))[-KEEP_RUNS:]
        body = b"".join(encode(r) for r in found if r.run in last)
        fresh = f"{self.path}.new"
        try:
            with open(fresh, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            self.close()
            os.replace(fresh, self.path)
            _sync_folder(os.path.dirname(self.path) or ".")
        except OSError as failure:
            raise _storage(f"the journal {self.path} cannot be shortened", failure) from failure


def encode(record: Record) -> bytes:
    """One line."""
    body = msgspec.json.encode(record)
    return b"%08x %s\n" % (crc32(body), body)


def read(path: str) -> list[Record]:
    """Every whole record in a journal file, in order; none if there is no file. Raises StorageError.

    Only the end of a file that is far larger than a journal becomes is read, and nothing of what is no file.
    """
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return []
            file.seek(max(0, facts.st_size - 4 * ROTATE_AT))
            lines = file.read().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as failure:
        raise _storage(f"the journal {path} cannot be read", failure) from failure
    return [record for record in map(_decode, lines) if record is not None]


def _decode(line: bytes) -> Record | None:
    mark, _, body = line.partition(b" ")
    try:
        if int(mark, 16) != crc32(body) or len(mark) != 8:
            return None
        found = msgspec.json.decode(body, type=_Line)
    except (ValueError, msgspec.MsgspecError):
        return None
    kept = {"plan": found.plan or None, "before": found.before or None}
    return Record(found.kind, found.run, found.boot, found.gpu, found.step, found.text, **kept)


def _end_torn_line(file: int) -> None:
    """A line torn by a power loss must not swallow the next record."""
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.write(file, b"\n")


def _sync_folder(folder: str) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _storage(brief: str, failure: OSError) -> StorageError | PermissionDeniedError:
    if isinstance(failure, PermissionError):
        return PermissionDeniedError(
            f"{brief}: {failure.strerror}", next_step="run it as root, or as the owner of that folder"
        )
    return StorageError(f"{brief}: {failure.strerror}", next_step=_NO_SPACE)
