"""The journal: each planned step is on disk before it is executed. Append-only JSON lines, each with a checksum.

A line is ``<crc32 as 8 hex digits> <record as JSON>``. A write succeeds or fails as a whole: a line that did not fit on
the disk, or that a power loss has torn, is truncated. Other lines may be invalid because of a failing disk, or because
another version wrote them. Before the next run they are set aside as ``NAME.unreadable``. The first record of a run
contains the version that wrote it. A file of an older release is then imported, too, and stays as ``NAME.imported``.
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
"""A torn line that is longer than this is truncated in several steps of this size."""
KEEP_WHOLE = 4
"""The number of runs that keep their change when the journal is shortened, because the last one can be continued. Older
runs are kept without it, for people. As many as fit in a quarter of the file stay, some hundred runs.
"""


def boot_id(path: str = BOOT_ID) -> str:
    """Return the kernel's id of this boot, "" if it has none."""
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError:
        return ""


def user() -> str:
    """Return the user for whom this process works: the one who called sudo, or the process's own user."""
    import pwd

    uid = os.getuid()
    try:
        return (os.environ.get("SUDO_USER", "") if uid == 0 else "") or pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


class FileJournal:
    """A journal in one file. Threads may append concurrently.

    ``boot`` is the id of this boot (a simulated node has its own). ``by`` is the requester, by default the user of this
    process. ``command`` is the command line that was typed. ``clock`` returns wall time.
    """

    def __init__(
        self,
        path: str,
        boot: str | None = None,
        *,
        rotate_at: int = ROTATE_AT,
        by: str = "",
        command: tuple[str, ...] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        from threading import Lock

        self.path = path
        self._by = by
        self._command = command
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
        """Return a new run id, after repairing the file. This is the only place where that is done, never within a run:
        the journal of an older release is imported, invalid lines are set aside, and a long journal is shortened to its
        last runs. Raises StorageError.

        The file is opened again for each run. Since our last run another process may have shortened the journal, which
        leaves us a file without a name, or may have died in the middle of a line.
        """
        self.close()
        try:
            self._put_in_order()
        except OSError as failure:
            raise atomic_file.denied(f"the journal {self.path} cannot be repaired", failure) from failure
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
        return msgspec.structs.replace(
            entry, at=at, by=by, format=FORMAT, writer=__version__, command=entry.command or self._command
        )

    def _sync(self, number: int) -> None:
        """Return when record ``number`` is on disk. Raises StorageError if it cannot be synced.

        One fsync serves all threads that wrote before it began, so that eight threads do not queue for eight of them.
        If it fails, it fails for all of these: the kernel reports the error only once.
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
                # Also for an existing file: the process that created it may have been killed before it synced the name.
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
    """Return a record as one line."""
    return _checked(msgspec.json.encode(entry)) + b"\n"


def _checked(text: bytes) -> bytes:
    return b"%08x %s" % (crc32(text), text)


def shorten(found: Sequence[JournalLine], bytes_left: int) -> list[JournalLine]:
    """Return the lines of a shortened journal: the last runs whole, and earlier ones without their change, as many as
    fit in ``bytes_left`` bytes.
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
    """Return the line without its change. Fields of other versions stay."""
    fields: dict[str, Any] = msgspec.json.decode(body(line.text) or b"{}")
    if fields.pop("change", None) is None:
        return line
    return JournalLine(_checked(msgspec.json.encode(fields)), line.entry)


def _end_torn_line(file: int) -> None:
    """Repair the end of the file, so that a line torn by a power loss does not merge with the next record. The line was
    never synced as a whole, so it is truncated, unless only its newline is missing.
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
