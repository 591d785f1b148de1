"""State that outlives its writer: small files that other versions of Aliquot or bad bytes may have touched.

Each file is one JSON object: what it is, the number of its format, the version that wrote it, a checksum of the content
and the content. The rules are the same for all of them:

- A field that this version does not know is kept when the file is rewritten, so that a downgrade loses nothing.
- The content before the last one stays as ``NAME.previous``, and counts where the file itself cannot be understood.
- What cannot be understood is reported, never fatal. The next write sets it aside as ``NAME.unreadable``.
- Files of releases before this store have other names. Such a file is newer than ours wherever there is one, because it
  is set aside as ``NAME.imported`` once it is taken over: its writer was an older release that ran since. That release
  did not see our file, so the two are merged.
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
"""Of all files. A larger one means that older versions misread the content: new fields alone do not change it."""
MOST_BYTES = 16 << 20
T = TypeVar("T")
ASIDE = ".unreadable"
GUIDE = "docs/upgrade.md"


class Unreadable(msgspec.Struct, frozen=True, order=True):
    """A state file that could not be understood. ``kind`` is which one, ``why`` is empty for a file that an earlier
    process has set aside.
    """

    path: str
    kind: str
    why: str = ""

    def __str__(self) -> str:
        if not self.why:
            return f"{self.path} was set aside because it could not be understood: {GUIDE} says what to do with it"
        return (
            f"{self.path} cannot be understood ({self.why}): what was recorded before counts, and the next change "
            f"moves this to {self.path}{ASIDE}; {GUIDE} says what to do with it"
        )


unreadable: dict[str, Unreadable] = {}
"""What this process could not understand and no write has set aside yet, by path. It has warned of each once."""


class _File(msgspec.Struct, frozen=True):
    kind: str
    format: int
    writer: str
    checksum: str
    content: msgspec.Raw


class _InvalidStateError(Exception):
    """Why the bytes of a file are no state of ours."""


class StateFile(Generic[T]):
    """One value in one file. ``kind`` tells files apart, ``shape`` is the value's type and ``empty`` what holds where
    nothing is stored. ``legacy_name`` is the file's name in releases before this store: the bare content, which
    ``decode_legacy`` decodes if it has another form (it raises ValueError for what has not). ``merge`` joins our value
    with one that such a release wrote since; without it the latter counts. Not ``durable``: a power loss may take what
    was saved. One process at a time may save: its callers have a lock.
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
        """The value that was saved last. Where that cannot be understood: the one before, else ``empty``, and a warning
        in the log. Raises StorageError where the file system refuses to read.
        """
        legacy = self._load_legacy()
        return self._load_current() if legacy is None else self._merge_legacy(legacy)

    def save(self, value: T) -> None:
        """Replace the value. Raises StorageError; then the former one holds."""
        try:
            self._import_legacy()
            self._replace(value)
        except OSError as failure:
            raise atomic_file.denied(f"{self.path} cannot be written", failure) from failure

    def remove(self) -> None:
        """Store nothing any more. Raises StorageError."""
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
        """What the last ``load`` could not understand; None where it understood all."""
        return next((unreadable[path] for path in (self._legacy_path, self.path) if path in unreadable), None)

    def _load_current(self) -> T:
        _, value, why = self._read_valid()
        if why:
            report(self._kind, self.path, why)
        else:
            unreadable.pop(self.path, None)
        return value

    def _load_legacy(self) -> T | None:
        """What a release before this store wrote, if no save has taken it over yet."""
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
        """The content that counts, its value, and why the file itself cannot be understood."""
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
        """Make the file of an older release ours: on disk under our name before its own goes."""
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
    """Note that a file cannot be understood, and warn of it once. Messages, metrics and events come from the notes."""
    if path in unreadable:
        return
    import logging

    unreadable[path] = Unreadable(path, kind, why)
    logging.getLogger("aliquot").warning("%s", unreadable[path])


def found_unreadable(*directories: str) -> tuple[Unreadable, ...]:
    """Return what cannot be understood in the state directories of a node: what this process has noted and no write has
    set aside yet, and files that were set aside and that still lie there.
    """
    folders = dict.fromkeys(each for top in directories for each in (top, os.path.join(top, SLURM_CHANGES)))
    noted = sorted(each for each in unreadable.values() if os.path.dirname(each.path) in folders)
    return (*(each for folder in folders for each in _aside(folder)), *noted)


def _aside(folder: str) -> list[Unreadable]:
    """The files of a folder that were set aside. Their names begin with their kind; Slurm's are those of nodes."""
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
    ) as error:  # msgspec's errors are ValueErrors, as is the one for bytes that are not text
        raise _InvalidStateError(str(error)) from error


def _checksum(content: bytes) -> str:
    return f"{crc32(content):08x}"


def _as_json(value: Any) -> Any:
    """The value as JSON has it."""
    return msgspec.json.decode(msgspec.json.encode(value))


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
