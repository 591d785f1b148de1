"""State that outlives its writer: small files that other versions of Aliquot, or corruption, may have touched.

Each file is one JSON object with its kind, format number, writer version, checksum and content. The same rules hold for
all files:

- A field that this version does not know is kept when the file is rewritten, so that a downgrade loses nothing.
- The previous content is kept as ``NAME.previous`` and is used if the file itself cannot be decoded.
- A file that cannot be decoded is reported and never fatal. The next write sets it aside as ``NAME.unreadable``.
- Releases before this store used other file names. Such a file is renamed to ``NAME.imported`` when it is imported. If
  one exists, an older release has run since and its file is newer than ours. That release did not read our file, so the
  two are merged.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Generic, TypeVar
from zlib import crc32

import msgspec

from aliquot import __version__
from aliquot.foundation import atomic_file
from aliquot.foundation.paths import SLURM_CHANGES

FORMAT = 1
"""The format number of all files. A larger number means that older versions would misread the content; new fields do
not change it.
"""
MOST_BYTES = 16 << 20
T = TypeVar("T")
ASIDE = ".unreadable"
GUIDE = "docs/upgrade.md"


class Unreadable(msgspec.Struct, frozen=True, order=True):
    """A state file that could not be decoded."""

    path: str
    kind: str
    """The kind of state file."""
    why: str = ""
    """The reason; empty for a file that an earlier process set aside."""

    def __str__(self) -> str:
        if not self.why:
            return f"{self.path} was set aside because it could not be understood: see {GUIDE}"
        return (
            f"{self.path} cannot be understood ({self.why}): the previous record is used, and the next change "
            f"moves this to {self.path}{ASIDE}; see {GUIDE}"
        )


unreadable: dict[str, Unreadable] = {}
"""Files, by path, that this process could not decode and that no write has set aside yet. Each was logged once."""


class _File(msgspec.Struct, frozen=True):
    kind: str
    format: int
    writer: str
    checksum: str
    content: msgspec.Raw


class _InvalidStateError(Exception):
    """The bytes of a file are not a state file of this kind."""


class StateFile(Generic[T]):
    """A value in a file. One process at a time may save; callers hold a lock.

    ``kind`` distinguishes files, ``shape`` is the type of the value, and ``empty`` is the value if nothing is stored.
    ``legacy_name`` is the file's name in releases before this store. That file holds only the content, which
    ``decode_legacy`` decodes if its form differs (it raises ValueError for invalid bytes). ``merge`` joins our value
    with one that such a release wrote since; without ``merge`` the latter is used. If not ``durable``, a power loss may
    lose a saved value.
    """

    def __init__(
        self,
        path: str,
        kind: str,
        shape: type[T],
        empty: T,
        *,
        legacy_name: str = "",
        decode_legacy: Callable[[bytes], T] | None = None,
        merge: Callable[[T, T], T] | None = None,
        mode: int = 0o644,
        durable: bool = True,
    ) -> None:
        self.path = path
        self._kind = kind
        self._shape = shape
        self._empty = empty
        self._legacy_path = os.path.normpath(os.path.join(os.path.dirname(path), legacy_name)) if legacy_name else ""
        self._decode_legacy = decode_legacy or (lambda body: msgspec.json.decode(body, type=shape))
        self._merge = merge
        self._mode = mode
        self._durable = durable

    def load(self) -> T:
        """Return the value that was saved last. If it cannot be decoded, return the one before, else ``empty``, and log
        a warning. Raises StorageError if the file system refuses to read.
        """
        legacy = self._load_legacy()
        return self._load_current() if legacy is None else self._merge_legacy(legacy)

    def save(self, value: T) -> None:
        """Replace the value. Raises StorageError; then the previous value remains."""
        try:
            self._import_legacy()
            self._replace(value)
        except OSError as failure:
            raise atomic_file.denied(f"{self.path} cannot be written", failure) from failure

    def remove(self) -> None:
        """Remove the stored value. Raises StorageError."""
        try:
            if self._read_valid()[2]:
                self._set_aside(self.path)
            if self._legacy_path and self._read(self._legacy_path) is not None and self._load_legacy() is None:
                self._set_aside(self._legacy_path)
            for path in filter(None, (self._legacy_path, self.path, f"{self.path}.previous")):
                with suppress(FileNotFoundError):
                    os.unlink(path)
                    self._sync(path)
        except OSError as failure:
            raise atomic_file.denied(f"{self.path} cannot be removed", failure) from failure

    @property
    def load_error(self) -> Unreadable | None:
        """The file that the last ``load`` could not decode, or None."""
        return next((unreadable[path] for path in (self._legacy_path, self.path) if path in unreadable), None)

    def _load_current(self) -> T:
        _, value, why = self._read_valid()
        if why:
            report(self._kind, self.path, why)
        else:
            unreadable.pop(self.path, None)
        return value

    def _load_legacy(self) -> T | None:
        """Return the value of a release before this store, or None if there is none or it has been imported."""
        body = self._read(self._legacy_path) if self._legacy_path else None
        try:
            value = None if body is None else self._decode_legacy(body)
        except (ValueError, RecursionError) as error:
            report(self._kind, self._legacy_path, str(error))
            return None
        unreadable.pop(self._legacy_path, None)
        return value

    def _merge_legacy(self, legacy: T) -> T:
        return self._merge(self._load_current(), legacy) if self._merge else legacy

    def _read(self, path: str) -> bytes | None:
        """Return the bytes of a file, None if it does not exist."""
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
            raise _InvalidStateError(f"it is {file.kind[:40]!r}, not {self._kind!r}")
        if file.format > FORMAT:
            raise _InvalidStateError(
                f"Aliquot {file.writer[:40]} wrote it in format {file.format}; this is {__version__}: {FORMAT}"
            )
        content = bytes(file.content)
        if file.checksum != _checksum(content):
            raise _InvalidStateError("its checksum is wrong")
        return content

    def _read_valid(self) -> tuple[bytes, T, str]:
        """Return the valid content, its value, and why the file itself cannot be decoded."""
        current = self._read(self.path)
        if current is None:
            return b"", self._empty, ""
        why = ""
        for body in (current, self._read(f"{self.path}.previous") or b""):
            try:
                content = self._content(body)
                return content, _decode(content, self._shape), why
            except _InvalidStateError as error:
                why = why or str(error)
        return b"", self._empty, why

    def _import_legacy(self) -> None:
        """Import the file of an older release: write it under our name before renaming it."""
        if not self._legacy_path or self._read(self._legacy_path) is None:
            return
        legacy = self._load_legacy()
        if legacy is None:
            self._set_aside(self._legacy_path)
            return
        self._replace(self._merge_legacy(legacy))
        atomic_file.rename(self._legacy_path, f"{self._legacy_path}.imported")
        self._sync(self._legacy_path)

    def _set_aside(self, path: str) -> None:
        atomic_file.rename(path, path + ASIDE)
        self._sync(path)
        unreadable.pop(path, None)

    def _sync(self, path: str) -> None:
        if self._durable:
            atomic_file.sync(os.path.dirname(path) or ".")

    def _replace(self, value: T) -> None:
        plain, known, why = self._read_valid()
        new = _as_json(value)
        if plain:
            new = _with_unknown(msgspec.json.decode(plain), _as_json(known), new)
        content = msgspec.json.encode(new)
        file = _File(self._kind, FORMAT, __version__, _checksum(content), msgspec.Raw(content))
        body = msgspec.json.encode(file) + b"\n"
        if len(body) > MOST_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        old = self.path + (ASIDE if why else ".previous")
        atomic_file.replace(self.path, body, mode=self._mode, durable=self._durable, old=old)
        unreadable.pop(self.path, None)


def report(kind: str, path: str, why: str) -> None:
    """Record that a file cannot be decoded, and log it once. Messages, metrics and events use these records."""
    if path in unreadable:
        return
    import logging

    unreadable[path] = Unreadable(path, kind, why)
    logging.getLogger("aliquot").warning("%s", unreadable[path])


def found_unreadable(*directories: str) -> tuple[Unreadable, ...]:
    """Return the undecodable files in the state directories of a node: those that this process recorded and no write
    has set aside yet, and those that were set aside and still exist.
    """
    folders = dict.fromkeys(each for top in directories for each in (top, os.path.join(top, SLURM_CHANGES)))
    noted = sorted(each for each in unreadable.values() if os.path.dirname(each.path) in folders)
    return (*(each for folder in folders for each in _aside(folder)), *noted)


def _aside(folder: str) -> list[Unreadable]:
    """Return the files of a directory that were set aside. A name begins with the kind; files of Slurm have the name of
    a node.
    """
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(ASIDE))
    except OSError:
        return []
    of_node = os.path.basename(folder) == SLURM_CHANGES
    return [
        Unreadable(os.path.join(folder, name), "slurm-change" if of_node else name.partition(".")[0]) for name in names
    ]


def _decode(body: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(body, type=shape)
    except (
        ValueError,
        RecursionError,
    ) as error:  # ValueError includes msgspec's errors and the one for bytes that are not text
        raise _InvalidStateError(str(error)) from error


def _checksum(content: bytes) -> str:
    return f"{crc32(content):08x}"


def _as_json(value: Any) -> Any:
    """Return the value as decoded JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _with_unknown(old: Any, known: Any, new: Any) -> Any:
    """Return the new value plus the fields of the old one that ``known`` lacks. An element of a list keeps such fields
    if it did not change.
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
