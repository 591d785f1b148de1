"""Reading of a journal: all of it, only its last run, or what was added since.

The file may have a torn last line and invalid lines. Invalid lines are reported and skipped. Older releases wrote a
file with another name and format. While that file exists, its records count as newer than ours, because an older
release wrote them later. The next change imports it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from zlib import crc32

import msgspec

from aliquot.core.engine.ports import JournalEntry, JournalKind
from aliquot.core.model.stored import Stored
from aliquot.foundation import atomic_file, state_store

JOURNAL = "change-journal.jsonl"
OLD_JOURNAL = "journal.jsonl"
KIND = "change-journal"
MAX_BYTES = 4 << 20
"""Only the end of a larger file is read; a journal does not become that large."""
_FIRST_BYTES = 1 << 16
_TORN = re.compile(rb"([0-9a-f]{0,8}|[0-9a-f]{8} (\{.*)?)\0*")
"""The remains of a line after a kill or a power loss: its beginning, and zeros."""


class JournalPosition(msgspec.Struct, frozen=True):
    """A position in a journal: the file's inode, and the end of its last complete line in bytes."""

    file: int = 0
    end: int = 0


class JournalLine(msgspec.Struct, frozen=True):
    """A line and its record, None if it cannot be decoded."""

    text: bytes
    entry: JournalEntry | None


def old_journal_path(path: str) -> str:
    """Return the path of the journal in older releases, for the ``path`` of the current one."""
    return os.path.join(os.path.dirname(path), OLD_JOURNAL)


def read(path: str) -> list[JournalEntry]:
    """Return all records of a journal in order, those of an older release last; none without a file. Raises
    StorageError.
    """
    found = _entries(path, lines(path))
    return found + _of_unknown_runs(read_old_journal(path), found)


def lines(path: str) -> list[JournalLine]:
    """Return the lines of a journal file, without a torn last one. Raises StorageError."""
    text, _ = _read(path, MAX_BYTES)
    found = [JournalLine(each, decode(each)) for each in text.split(b"\n") if each]
    end = text[text.rfind(b"\n") + 1 :]
    torn = end and found[-1].entry is None and _TORN.fullmatch(end)
    return found[:-1] if torn else found


def last_run(path: str) -> list[JournalEntry]:
    """Return the records of the run that was written last. Reads only the end of a long journal.
    Raises StorageError.
    """
    if older := read_old_journal(path):
        found = _entries(path, lines(path))
        return last_run_entries(_of_unknown_runs(older, found) or found)
    limit = _FIRST_BYTES
    while True:
        text, whole = _read(path, limit)
        run = last_run_entries([entry for entry in map(decode, text.split(b"\n")) if entry is not None])
        if whole or (run and run[0].kind == "begin"):
            return run
        limit *= 4


def last_run_entries(entries: Sequence[JournalEntry]) -> list[JournalEntry]:
    """Return the records of the run that the last one belongs to."""
    return [r for r in entries if r.run == entries[-1].run]


def read_added(path: str, since: JournalPosition) -> tuple[list[JournalEntry], JournalPosition, bool]:
    """Return the records after a position, the new position, and whether these are all records: the file is another
    one, or was never read. An incomplete last line is left for the next call. Raises StorageError.
    """
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return [], JournalPosition(), True
            restarted = facts.st_ino != since.file or facts.st_size < since.end
            start = max(0, facts.st_size - MAX_BYTES) if restarted else since.end
            file.seek(start)
            text = file.read()
    except OSError as failure:
        raise atomic_file.denied(f"the journal {path} cannot be read", failure) from failure
    whole = text.rfind(b"\n") + 1
    found = [JournalLine(each, decode(each)) for each in text[:whole].split(b"\n") if each]
    return _entries(path, found, all_of_it=restarted), JournalPosition(facts.st_ino, start + whole), restarted


def read_old_journal(path: str) -> list[JournalEntry]:
    """Return the records of an older release that no change has imported yet. Raises StorageError."""
    text = _read(old_journal_path(path), MAX_BYTES)[0]
    if not text:
        return []
    from aliquot.hardware.state.journal_import import import_entry

    every = [import_entry(body(line)) for line in text.split(b"\n")]
    if every[-1] is None:
        every.pop()  # after the last line, or a torn one
    found = [entry for entry in every if entry is not None]
    _note(old_journal_path(path), len(every) - len(found))
    return found


def decode(line: bytes) -> JournalEntry | None:
    """Return the record in a line (without newline); None if it has none that this version can decode."""
    found = body(line)
    if found is None:
        return None
    try:
        entry = msgspec.json.decode(found, type=_Line)
    except (ValueError, RecursionError):
        return None
    return JournalEntry(
        **{name: getattr(entry, name) for name in entry.__struct_fields__} | {"change": entry.change or None}
    )


def body(line: bytes) -> bytes | None:
    """Return the text of a line after its checksum; None if the checksum is wrong."""
    checksum, _, text = line.partition(b" ")
    try:
        return text if len(checksum) == 8 and int(checksum, 16) == crc32(text) else None
    except ValueError:
        return None


def _read(path: str, limit: int) -> tuple[bytes, bool]:
    """Return the end of a file, and whether that is all that is ever read of it."""
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return b"", True
            file.seek(max(0, facts.st_size - limit))
            return file.read(), limit >= min(facts.st_size, MAX_BYTES)
    except FileNotFoundError:
        return b"", True
    except OSError as failure:
        raise atomic_file.denied(f"the journal {path} cannot be read", failure) from failure


class _Line(msgspec.Struct):
    """A record as it is decoded: msgspec does not decode ``Raw | None``."""

    kind: Stored[JournalKind]
    run: str
    boot: str = ""
    gpu: str = ""
    step: str = ""
    text: str = ""
    change: msgspec.Raw = msgspec.Raw()
    at: float = 0.0
    by: str = ""
    format: int = 0
    writer: str = ""
    command: tuple[str, ...] = ()


def _entries(path: str, found: Iterable[JournalLine], *, all_of_it: bool = True) -> list[JournalEntry]:
    """Return the records in some complete lines. Lines without a record are reported."""
    every = list(found)
    entries = [line.entry for line in every if line.entry is not None]
    if all_of_it or len(entries) < len(every):
        _note(path, len(every) - len(entries))
    return entries


def _note(path: str, bad: int) -> None:
    """Report a file with ``bad`` lines without a record; with 0, withdraw its report."""
    if bad:
        state_store.report(KIND, path, f"{bad} of its lines are not records of this version")
    else:
        state_store.unreadable.pop(path, None)


def _of_unknown_runs(older: Sequence[JournalEntry], known: Sequence[JournalEntry]) -> list[JournalEntry]:
    """Return the records of unknown runs: a process may have been killed between importing a file and renaming it."""
    runs = {entry.run for entry in known}
    return [entry for entry in older if entry.run not in runs]
