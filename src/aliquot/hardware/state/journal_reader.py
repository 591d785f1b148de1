"""A journal as it is read: all of it, its last run alone, or what was added since.

Its file may have a torn last line and bad ones. What cannot be understood is reported and left out. Older releases
wrote a file of another name and form: as long as it is there, it counts after ours, because an older release made it
since. The next change takes it over.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from zlib import crc32

import msgspec

from aliquot.core.engine.ports import Record
from aliquot.foundation import atomic_file, state_store

JOURNAL = "change-journal.jsonl"
FORMER = "journal.jsonl"
KIND = "change-journal"
MOST_BYTES = 4 << 20
"""Of a file that is larger, which no journal becomes, only the end is read."""
_FIRST_BYTES = 1 << 16
_TORN = re.compile(rb"([0-9a-f]{0,8}|[0-9a-f]{8} (\{.*)?)\0*")
"""What a kill or a power loss leaves of a line: its beginning, and zeros."""


class Mark(msgspec.Struct, frozen=True):
    """How far a file was read: which file that was, and the end of its last whole line then, in bytes."""

    file: int = 0
    end: int = 0


class Line(msgspec.Struct, frozen=True):
    """A line and the record in it, None where it cannot be understood."""

    text: bytes
    record: Record | None


def former_path(path: str) -> str:
    """Return where older releases keep the journal whose path in this one is ``path``."""
    return os.path.join(os.path.dirname(path), FORMER)


def read(path: str) -> list[Record]:
    """Every record of a journal in order, those of an older release last; none if there is no file. Raises
    StorageError.
    """
    found = _records(path, lines(path))
    return found + _unknown(former(path), found)


def lines(path: str) -> list[Line]:
    """Every line of a journal file, without a torn last one. Raises StorageError."""
    text, _ = _read(path, MOST_BYTES)
    found = [Line(each, decode(each)) for each in text.split(b"\n") if each]
    end = text[text.rfind(b"\n") + 1 :]
    torn = end and found[-1].record is None and _TORN.fullmatch(end)
    return found[:-1] if torn else found


def last_run(path: str) -> list[Record]:
    """The records of the run that was written to last. A long journal is not read for it. Raises StorageError."""
    if older := former(path):
        found = _records(path, lines(path))
        return last(_unknown(older, found) or found)
    most = _FIRST_BYTES
    while True:
        text, whole = _read(path, most)
        run = last([record for record in map(decode, text.split(b"\n")) if record is not None])
        if whole or (run and run[0].kind == "begin"):
            return run
        most *= 4


def last(records: Sequence[Record]) -> list[Record]:
    """Return the records of the run that the last one belongs to."""
    return [r for r in records if r.run == records[-1].run]


def added(path: str, since: Mark) -> tuple[list[Record], Mark, bool]:
    """The records after a mark, a new mark, and whether these are all there are: the file is another, or was never
    read. A line that is not whole yet is left for the next time. Raises StorageError.
    """
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return [], Mark(), True
            anew = facts.st_ino != since.file or facts.st_size < since.end
            start = max(0, facts.st_size - MOST_BYTES) if anew else since.end
            file.seek(start)
            text = file.read()
    except OSError as failure:
        raise atomic_file.denied(f"the journal {path} cannot be read", failure) from failure
    whole = text.rfind(b"\n") + 1
    found = [Line(each, decode(each)) for each in text[:whole].split(b"\n") if each]
    return _records(path, found, all_of_it=anew), Mark(facts.st_ino, start + whole), anew


def former(path: str) -> list[Record]:
    """The records that an older release wrote and no change has taken over yet. Raises StorageError."""
    text = _read(former_path(path), MOST_BYTES)[0]
    if not text:
        return []
    from aliquot.hardware.state.journal_import import older_record

    every = [older_record(body(line)) for line in text.split(b"\n")]
    if every[-1] is None:
        every.pop()  # behind the last line, or a torn one
    found = [record for record in every if record is not None]
    _note(former_path(path), len(every) - len(found))
    return found


def decode(line: bytes) -> Record | None:
    """Return the record in a line without its end; None where it has none that this version understands."""
    found = body(line)
    if found is None:
        return None
    try:
        record = msgspec.json.decode(found, type=_Line)
    except (ValueError, RecursionError):
        return None
    return Record(
        **{name: getattr(record, name) for name in record.__struct_fields__} | {"change": record.change or None}
    )


def body(line: bytes) -> bytes | None:
    """Return what stands in a line behind its checksum; None where that is wrong."""
    mark, _, text = line.partition(b" ")
    try:
        return text if len(mark) == 8 and int(mark, 16) == crc32(text) else None
    except ValueError:
        return None


def _read(path: str, most: int) -> tuple[bytes, bool]:
    """The end of a file, and whether that is all that is ever read of it."""
    try:
        with open(path, "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return b"", True
            file.seek(max(0, facts.st_size - most))
            return file.read(), most >= min(facts.st_size, MOST_BYTES)
    except FileNotFoundError:
        return b"", True
    except OSError as failure:
        raise atomic_file.denied(f"the journal {path} cannot be read", failure) from failure


class _Line(msgspec.Struct):
    """A record as it is read: msgspec does not decode ``Raw | None``."""

    kind: str
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


def _records(path: str, found: Iterable[Line], *, all_of_it: bool = True) -> list[Record]:
    """The records in some whole lines. Lines without one are reported."""
    every = list(found)
    records = [line.record for line in every if line.record is not None]
    if all_of_it or len(records) < len(every):
        _note(path, len(every) - len(records))
    return records


def _note(path: str, bad: int) -> None:
    """Report a file with this many lines that hold no record; of one without, nothing stays reported."""
    if bad:
        state_store.report(KIND, path, f"{bad} of its lines are no records of this version")
    else:
        state_store.unreadable.pop(path, None)


def _unknown(older: Sequence[Record], known: Sequence[Record]) -> list[Record]:
    """The records of runs that are not known yet: a process may have been killed between taking a file over and
    renaming it.
    """
    runs = {record.run for record in known}
    return [record for record in older if record.run not in runs]
