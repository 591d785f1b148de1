"""The journal: what was about to be done, on disk before it is done. Append-only JSON lines, a checksum in each.

A line is ``<crc32 as 8 hex digits> <record as JSON>``. Writing fails whole or not at all: a line that did not fit on
the disk, or that a power loss has torn, is cut off again. Other lines may be bad on a dying disk, or of a version that
writes something else: before the next run they are set aside as ``NAME.unreadable``. The first record of a run says
which version wrote it. A file of an older release is taken over then, too, and stays as ``NAME.imported``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any
from zlib import crc32

import msgspec

from aliquot import __version__
from aliquot.core.engine.ports import FORMAT, JournalEntry
from aliquot.foundation import atomic_file, state_store
from aliquot.hardware.state.journal_reader import (
    JournalLine,
    body,
    decode,
    last_run,
    lines,
    old_journal_path,
    read_old_journal,
)

BOOT_ID = "/proc/sys/kernel/random/boot_id"
ROTATE_AT = 1 << 20
MAX_TAIL = 4 << 20
"""Where a torn line is longer than that, this much of it is cut off at a time."""
KEEP_WHOLE = 4
"""Runs whose change outlives a shortening: the last one can be taken up again. Older ones are for people, who do not
need it: what was done, when and for whom stays of as many as a quarter of the file takes, some hundred runs.
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
        """A fresh run id. The place where the file is put in order, never within a run: the journal of an older release
        is taken over, lines that cannot be understood are set aside, an over-long journal is cut down to its last runs.
        Raises StorageError.

        The file is opened anew for each run: since the last one of ours, others may have cut the journal down, which
        leaves us a file without a name, or may have died in the middle of a line.
        """
        self.close()
        try:
            self._put_in_order()
        except OSError as failure:
            raise atomic_file.denied(f"the journal {self.path} cannot be put in order", failure) from failure
        return os.urandom(6).hex()

    def append(self, entry: JournalEntry, *, durable: bool) -> None:
        line = encode(self._stamped(entry))
        with self._lock:
            file = self._open()
            try:
                size = os.fstat(file).st_size
                written = os.write(file, line)
                if written < len(line):
                    os.ftruncate(file, size)
                    raise OSError(28, "no space left on device")
            except OSError as failure:
                raise atomic_file.denied(f"the journal {self.path} cannot be written", failure) from failure
            self._written += 1
            number = self._written
        if durable:
            self._sync(number)

    def _stamped(self, entry: JournalEntry) -> JournalEntry:
        at = entry.at or round(self._clock(), 3)
        if entry.kind != "begin":
            return msgspec.structs.replace(entry, at=at)
        by = entry.by or self._by or user()
        return msgspec.structs.replace(entry, at=at, by=by, format=FORMAT, writer=__version__)

    def _sync(self, number: int) -> None:
        """Return when record ``number`` is on disk. Raises StorageError if it is not.

        One fsync serves every lane that wrote before it began, so that eight lanes do not queue for eight of them. A
        failed one fails for all of these: the kernel tells it only once.
        """
        with self._syncing:
            if self._synced < number:
                with self._lock:
                    covered, file = self._written, self._open()
                try:
                    os.fsync(file)
                except OSError as failure:
                    self._lost.append((self._synced, covered, failure))
                self._synced = covered
            for first, last, cause in self._lost:
                if first < number <= last:
                    raise atomic_file.denied(f"the journal {self.path} cannot be written", cause) from cause

    def entries(self) -> Sequence[JournalEntry]:
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
                atomic_file.make_folder(folder)
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
                self._file = os.open(self.path, flags, 0o644)
                _end_torn_line(self._file)
                # Also of a file that is there: the process that made it may have been killed before it synced the name.
                atomic_file.sync(folder)
            except OSError as failure:
                raise atomic_file.denied(f"the journal {self.path} cannot be opened", failure) from failure
        return self._file

    def _put_in_order(self) -> None:
        found, older = lines(self.path), read_old_journal(self.path)
        bad = [line.text for line in found if line.entry is None]
        remaining = [line for line in found if line.entry is not None]
        known = {line.entry.run for line in remaining if line.entry is not None}
        remaining += [JournalLine(encode(entry)[:-1], entry) for entry in older if entry.run not in known]
        size = sum(len(line.text) + 1 for line in remaining)
        if size >= self._rotate_at:
            remaining = shorten(remaining, self._rotate_at // 4)
        if bad:
            atomic_file.replace(self.path + state_store.ASIDE, b"".join(text + b"\n" for text in bad))
        if bad or older or size >= self._rotate_at:
            atomic_file.replace(self.path, b"".join(line.text + b"\n" for line in remaining))
        state_store.unreadable.pop(self.path, None)
        self._set_old_journal_aside(bool(older))

    def _set_old_journal_aside(self, understood: bool) -> None:
        path = old_journal_path(self.path)
        with suppress(FileNotFoundError):
            atomic_file.rename(path, path + (".imported" if understood else state_store.ASIDE))
            state_store.unreadable.pop(path, None)


def encode(entry: JournalEntry) -> bytes:
    """One line."""
    return _checked(msgspec.json.encode(entry)) + b"\n"


def _checked(text: bytes) -> bytes:
    return b"%08x %s" % (crc32(text), text)


def shorten(found: Sequence[JournalLine], bytes_left: int) -> list[JournalLine]:
    """The lines of a journal that is cut down: the last runs whole, earlier ones thinned, as many as ``bytes_left``
    takes, in bytes.
    """
    runs: dict[str, list[JournalLine]] = {}
    for line in found:
        if line.entry is not None:
            runs.setdefault(line.entry.run, []).append(line)
    selected: list[list[JournalLine]] = []
    for age, run in enumerate(reversed(runs.values())):
        whole = run if age < KEEP_WHOLE else list(map(_thin, run))
        if age >= KEEP_WHOLE:
            bytes_left -= sum(len(line.text) + 1 for line in whole)
            if bytes_left < 0:
                break
        selected.append(whole)
    return [line for run in reversed(selected) for line in run]


def _thin(line: JournalLine) -> JournalLine:
    """The line without its change. Fields of other versions stay."""
    fields: dict[str, Any] = msgspec.json.decode(body(line.text) or b"{}")
    if fields.pop("change", None) is None:
        return line
    return JournalLine(_checked(msgspec.json.encode(fields)), line.entry)


def _end_torn_line(file: int) -> None:
    """A line torn by a power loss must not swallow the next record. It never was on disk as a whole: it is cut off,
    unless only its end is missing.
    """
    size = os.fstat(file).st_size
    if not size or os.pread(file, 1, size - 1) == b"\n":
        return
    tail = os.pread(file, MAX_TAIL, max(0, size - MAX_TAIL))
    torn = tail[tail.rfind(b"\n") + 1 :]
    if decode(torn) is not None:
        os.write(file, b"\n")
    else:
        os.ftruncate(file, size - len(torn))
