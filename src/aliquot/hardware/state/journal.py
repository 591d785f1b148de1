"""The journal: what was about to be done, on disk before it is done. Append-only JSON lines, a checksum in each.

A line is ``<crc32 as 8 hex digits> <record as JSON>``. After a power loss the last line may be torn and, on a dying
disk, others may be bad: a line whose checksum is wrong is no record. Writing fails whole or not at all: a line that did
not fit on the disk is cut off again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from zlib import crc32

import msgspec

from aliquot.core.engine.ports import Record
from aliquot.foundation import atomic_file
from aliquot.hardware.state.journal_reader import last_run, read, storage_error

BOOT_ID = "/proc/sys/kernel/random/boot_id"
ROTATE_AT = 1 << 20
KEEP_WHOLE = 4
"""Runs whose plan and former state outlive a shortening: the last one can be taken up again. Older ones are for people,
who need neither: what was done, when and for whom stays of as many as a quarter of the file takes, some hundred runs.
"""


def boot_id(path: str = BOOT_ID) -> str:
    """The kernel's id of this boot; empty where the kernel has none to tell."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def user() -> str:
    """Who this process works for: the one who called sudo, or the process's own user."""
    import pwd

    uid = os.getuid()
    try:
        return (os.environ.get("SUDO_USER", "") if uid == 0 else "") or pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


class FileJournal:
    """A journal in one file. ``boot`` is this boot's id (a simulated node has its own); ``by`` is who asks, this
    process's user if not given; ``clock`` tells wall time. Threads may append at once.
    """

    def __init__(
        self,
        path: str,
        boot: str | None = None,
        *,
        rotate_at: int = ROTATE_AT,
        by: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        from threading import Lock

        self.path = path
        self._by = by
        self._clock = clock
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
        """A fresh run id. The place where an over-long journal is cut down to its last runs: never within a run.

        The file is opened anew for each run: since the last one of ours, others may have cut the journal down, which
        leaves us a file without a name, or may have died in the middle of a line.
        """
        self._rotate()
        self.close()
        return os.urandom(6).hex()

    def append(self, record: Record, *, durable: bool) -> None:
        line = encode(self._signed(record))
        with self._lock:
            file = self._open()
            try:
                size = os.fstat(file).st_size
                written = os.write(file, line)
                if written < len(line):
                    os.ftruncate(file, size)
                    raise OSError(28, "no space left on device")
            except OSError as failure:
                raise storage_error(f"the journal {self.path} cannot be written", failure) from failure
            self._written += 1
            mine = self._written
        if durable:
            self._sync(mine)

    def _signed(self, record: Record) -> Record:
        by = record.by or ((self._by or user()) if record.kind == "begin" else "")
        return msgspec.structs.replace(record, at=record.at or round(self._clock(), 3), by=by)

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
                    raise storage_error(f"the journal {self.path} cannot be written", cause) from cause

    def records(self) -> Sequence[Record]:
        return last_run(self.path)

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
                    atomic_file.sync(folder)
            except OSError as failure:
                raise storage_error(f"the journal {self.path} cannot be opened", failure) from failure
        return self._file

    def _rotate(self) -> None:
        try:
            if os.stat(self.path).st_size < self._rotate_at:
                return
        except OSError:
            return  # none yet; if it cannot be read, the first append says why
        body = b"".join(shortened(read(self.path), self._rotate_at // 4))
        try:
            self.close()
            atomic_file.replace(self.path, body)
        except OSError as failure:
            raise storage_error(f"the journal {self.path} cannot be shortened", failure) from failure


def encode(record: Record) -> bytes:
    """One line."""
    body = msgspec.json.encode(record)
    return b"%08x %s\n" % (crc32(body), body)


def shortened(records: Sequence[Record], room: int) -> list[bytes]:
    """The lines of a journal that is cut down: the last runs whole, earlier ones thinned, as many as ``room`` takes,
    in bytes.
    """
    runs: dict[str, list[Record]] = {}
    for record in records:
        runs.setdefault(record.run, []).append(record)
    kept: list[list[bytes]] = []
    for age, run in enumerate(reversed(runs.values())):
        lines = [encode(r if age < KEEP_WHOLE else _thin(r)) for r in run]
        if age >= KEEP_WHOLE:
            room -= sum(map(len, lines))
            if room < 0:
                break
        kept.append(lines)
    return [line for lines in reversed(kept) for line in lines]


def _thin(record: Record) -> Record:
    return msgspec.structs.replace(record, plan=None, before=None)


def _end_torn_line(file: int) -> None:
    """A line torn by a power loss must not swallow the next record."""
    size = os.fstat(file).st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.write(file, b"\n")
