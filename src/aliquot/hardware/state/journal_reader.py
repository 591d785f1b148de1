"""A journal as it is read: all of it, its last run alone, or what was added since.

Its file may have a torn last line and bad ones; what is no record is left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from zlib import crc32

import msgspec

from aliquot.core.engine.ports import Record
from aliquot.errors import PermissionDeniedError, StorageError

JOURNAL = "journal.jsonl"
MOST_BYTES = 4 << 20
"""Of a file that is larger, which no journal becomes, only the end is read."""
_FIRST_BYTES = 1 << 16
_NO_SPACE = "free space there, then run the command again"


class Mark(msgspec.Struct, frozen=True):
    """How far a file was read: which file that was, and the end of its last whole line then, in bytes."""

    file: int = 0
    end: int = 0


def read(path: str) -> list[Record]:
    """Every whole record in a journal file, in order; none if there is no file. Raises StorageError."""
    return _records(_read(path, MOST_BYTES)[0].split(b"\n"))


def last_run(path: str) -> list[Record]:
    """The records of the run that was written to last. A long journal is not read for it. Raises StorageError."""
    most = _FIRST_BYTES
    while True:
        text, whole = _read(path, most)
        found = _records(text.split(b"\n"))
        run = [r for r in found if r.run == found[-1].run]
        if whole or (run and run[0].kind == "begin"):
            return run
        most *= 4


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
        raise storage_error(f"the journal {path} cannot be read", failure) from failure
    whole = text.rfind(b"\n") + 1
    return _records(text[:whole].split(b"\n")), Mark(facts.st_ino, start + whole), anew


def storage_error(brief: str, failure: OSError) -> StorageError | PermissionDeniedError:
    """What a failure of the journal's file means to whoever types."""
    if isinstance(failure, PermissionError):
        return PermissionDeniedError(
            f"{brief}: {failure.strerror}", next_step="run it as root, or as the owner of that folder"
        )
    return StorageError(f"{brief}: {failure.strerror}", next_step=_NO_SPACE)


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
        raise storage_error(f"the journal {path} cannot be read", failure) from failure


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
    at: float = 0.0
    by: str = ""


def _records(lines: Iterable[bytes]) -> list[Record]:
    return [record for record in map(_decode, lines) if record is not None]


def _decode(line: bytes) -> Record | None:
    mark, _, body = line.partition(b" ")
    try:
        if int(mark, 16) != crc32(body) or len(mark) != 8:
            return None
        found = msgspec.json.decode(body, type=_Line)
    except (ValueError, msgspec.MsgspecError):
        return None
    return Record(
        found.kind,
        found.run,
        found.boot,
        found.gpu,
        found.step,
        found.text,
        plan=found.plan or None,
        before=found.before or None,
        at=found.at,
        by=found.by,
    )
