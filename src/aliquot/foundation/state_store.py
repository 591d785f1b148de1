"""State that outlives its writer: small files that other versions of Aliquot or bad bytes may have touched.

Each file is one JSON object: what it is, the number of its format, the version that wrote it, a checksum of the content
and the content. The rules are the same for all of them:

- A field that this version does not know is kept when the file is rewritten, so that a downgrade loses nothing.
- The content before the last one stays as ``NAME.previous``, and counts where the file itself cannot be understood.
- What cannot be understood is reported, never fatal. The next write sets it aside as ``NAME.unreadable``.
- Files of releases before this store have other names. Such a file is newer than ours wherever there is one, because it
  is set aside as ``NAME.imported`` once it is taken over: its writer was an older release that ran since.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Generic, TypeVar
from zlib import crc32

import msgspec

from aliquot import __version__
from aliquot.foundation import atomic_file

FORMAT = 1
"""Of all files. A larger one means that older versions misread the content: new fields alone do not change it."""
MOST_BYTES = 16 << 20
T = TypeVar("T")

unreadable: dict[str, str] = {}
"""What this process could not understand: why, by path. It has warned of each once."""


class _File(msgspec.Struct, frozen=True):
    kind: str
    format: int
    writer: str
    checksum: str
    content: msgspec.Raw


class _Odd(Exception):
    """Why the bytes of a file are no state of ours."""


class StateFile(Generic[T]):
    """One value in one file. ``kind`` tells files apart, ``shape`` is the value's type and ``empty`` what holds where
    nothing is stored. ``former`` is the file's name in releases before this store: the bare content. Not ``durable``:
    the last writes may be lost with the machine's power. One process at a time may save: its callers have a lock.
    """

    def __init__(
        self,
        path: str,
        kind: str,
        shape: type[T],
        empty: T,
        *,
        former: str = "",
        mode: int = 0o644,
        durable: bool = True,
    ) -> None:
        self.path = path
        self._kind = kind
        self._shape = shape
        self._empty = empty
        self._former = os.path.join(os.path.dirname(path), former) if former else ""
        self._mode = mode
        self._durable = durable

    def load(self) -> T:
        """The value that was saved last. Where that cannot be understood: the one before, else ``empty``, and a warning
        in the log. Raises StorageError, PermissionDeniedError where the file system refuses to read.
        """
        return self._load()[0]

    def save(self, value: T) -> None:
        """Replace the value. Raises StorageError, PermissionDeniedError; then the former one holds."""
        try:
            self._take_over()
            plain, known, sound = self._plain()
            new = msgspec.json.decode(msgspec.json.encode(value))
            aside = f"{self.path}.previous" if sound else f"{self.path}.unreadable"
            self._write(_with_unknown(plain, known, new), aside)
        except OSError as failure:
            raise atomic_file.denied(f"{self.path} cannot be written", failure) from failure

    def remove(self) -> None:
        """Store nothing any more. Raises StorageError, PermissionDeniedError."""
        try:
            for path in filter(None, (self._former, self.path, f"{self.path}.previous")):
                with suppress(FileNotFoundError):
                    os.unlink(path)
        except OSError as failure:
            raise atomic_file.denied(f"{self.path} cannot be removed", failure) from failure

    def _load(self) -> tuple[T, bytes]:
        """The value, and the content that it was decoded from."""
        if self._former and (body := self._read(self._former)) is not None:
            try:
                return self._decoded(body), body
            except _Odd as odd:
                _warn(self._former, odd)
        current = self._read(self.path)
        if current is None:
            return self._empty, b""
        try:
            content = self._content(current)
            return self._decoded(content), content
        except _Odd as odd:
            _warn(self.path, odd)
        try:
            content = self._content(self._read(f"{self.path}.previous") or b"")
            return self._decoded(content), content
        except _Odd:
            return self._empty, b""

    def _read(self, path: str) -> bytes | None:
        """The bytes of a file, None where there is none."""
        try:
            with open(path, "rb") as file:
                return file.read(MOST_BYTES)
        except FileNotFoundError:
            return None
        except OSError as failure:
            raise atomic_file.denied(f"{path} cannot be read", failure) from failure

    def _content(self, body: bytes) -> bytes:
        file = _decode(body, _File)
        if file.kind != self._kind:
            raise _Odd(f"it is {file.kind[:40]!r}, not {self._kind!r}")
        if file.format > FORMAT:
            raise _Odd(f"Aliquot {file.writer[:40]} wrote it in format {file.format}; this is {__version__}: {FORMAT}")
        content = bytes(file.content)
        if file.checksum != _checksum(content):
            raise _Odd("its checksum is wrong")
        return content

    def _decoded(self, content: bytes) -> T:
        return _decode(content, self._shape)

    def _plain(self) -> tuple[Any, Any, bool]:
        """The content as it is, what of it this version knows, and whether the file is sound."""
        body = self._read(self.path)
        if body is None:
            return None, None, True
        try:
            content = self._content(body)
            value = self._decoded(content)
        except _Odd:
            return None, None, False
        return msgspec.json.decode(content), msgspec.json.decode(msgspec.json.encode(value)), True

    def _take_over(self) -> None:
        """Make the file of an older release ours: on disk under our name before its own goes."""
        body = self._read(self._former) if self._former else None
        if body is None:
            return
        try:
            value = self._decoded(body)
        except _Odd:
            atomic_file.put(self._former, f"{self._former}.unreadable")
            return
        self._write(msgspec.json.decode(msgspec.json.encode(value)), f"{self.path}.previous")
        atomic_file.put(self._former, f"{self._former}.imported")

    def _write(self, plain: Any, aside: str) -> None:
        content = msgspec.json.encode(plain)
        file = _File(self._kind, FORMAT, __version__, _checksum(content), msgspec.Raw(content))
        body = msgspec.json.encode(file) + b"\n"
        atomic_file.replace(self.path, body, mode=self._mode, durable=self._durable, old=aside)


def _decode(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (
        ValueError,
        RecursionError,
    ) as error:  # msgspec's errors are ValueErrors, as is that for bytes that are no text
        raise _Odd(str(error)) from error


def _checksum(content: bytes) -> str:
    return f"{crc32(content):08x}"


def _with_unknown(old: Any, known: Any, new: Any) -> Any:
    """The new value with what the old one had beside what is known of it. An element of a list keeps it where it did
    not change.
    """
    if old == known:
        return new
    if known == new:
        return old
    if isinstance(old, dict) and isinstance(known, dict) and isinstance(new, dict):
        more = {k: v for k, v in old.items() if k not in known and k not in new}
        return {k: _with_unknown(old[k], known[k], v) if k in old and k in known else v for k, v in new.items()} | more
    if isinstance(old, list) and isinstance(known, list) and isinstance(new, list) and len(old) == len(known):
        return [next((o for o, k in zip(old, known, strict=True) if k == each), each) for each in new]
    return new


def _warn(path: str, odd: _Odd) -> None:
    if path in unreadable:
        return
    import logging

    unreadable[path] = str(odd)
    logging.getLogger("aliquot").warning(
        "%s cannot be understood (%s): the state before it counts; the next write sets it aside", path, odd
    )
