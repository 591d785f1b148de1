"""Files of ``--out``: a file that Aliquot did not write is replaced only with ``--force``."""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
from typing import Any

from aliquot.cli.framework.output import encoded
from aliquot.errors import ForeignFileError, StorageError

_MARK = "# Written by Aliquot. Checksum of the lines below: "
_EDITED = "was edited after Aliquot wrote it"
_METRICS = "# HELP aliquot_"
_SHOWN = 1 << 24
"""Bytes that are read of a file: Aliquot writes no larger ones."""


def marked(body: str) -> str:
    """Add a first line with a checksum to a YAML document, which later shows whether the file was edited."""
    return f"{_MARK}{_checksum(body)}\n{body}"


def marked_json(body: str) -> str:
    """Add a member with a checksum to a JSON object, which later shows whether the file was edited. Formats that allow
    no such member, above all mig-parted's, and texts that are not objects stay as they are.
    """
    from aliquot.core.config.file import JSON_MARK, NATIVE

    plain = _object(body)
    if plain.get("version") != NATIVE and not plain.keys() >= {"schema", "family", "profiles"}:
        return body
    return f"{_encoded({JSON_MARK: _member(plain), **plain})}\n"


def save(path: str, text: str, *, force: bool) -> None:
    """Write a file as a whole. Raises ForeignFileError for a file that Aliquot did not write, unless ``force``. Raises
    StorageError if it cannot be written.
    """
    check(path, force=force, fresh=text)
    replace(path, text.encode())


def check(path: str, *, force: bool, fresh: str = "") -> None:
    """Refuse a path that ``save`` would refuse, before anything else is done. Raises ForeignFileError, StorageError."""
    check_folder(path)
    _refuse_a_foreign_link(path)
    refuse_foreign(path, force=force, fresh=fresh)


def check_folder(path: str) -> None:
    """Raise StorageError if the folder of a path does not exist: it may be misspelt, so it is not made."""
    folder = os.path.dirname(path) or "."
    step, why = f"ls -ld {shlex.quote(folder)}", ""
    try:
        if not stat.S_ISDIR(os.stat(folder).st_mode):
            why = f"{folder} is not a folder"
    except FileNotFoundError:
        step, why = f"mkdir -p {shlex.quote(folder)}", f"the folder {folder} does not exist"
    except OSError as error:
        why = error.strerror or str(error)
    if why:
        raise StorageError(f"cannot write {path}: {why}", next_step=step)


def is_special(path: str) -> bool:
    """Report whether a path is neither a file nor free: a device, a pipe or a folder."""
    return os.path.exists(path) and not os.path.isfile(path)


def replace(path: str, data: bytes, *, mode: int | None = None, durable: bool = False) -> None:
    """Write a file as a whole, through links. A device or a pipe gets the bytes. ``mode`` is that of the present file
    by default. Raises StorageError, also if the path is another user's link, which could make root write any file.
    """
    from aliquot.foundation import atomic_file

    try:
        _refuse_a_foreign_link(path)
        if is_special(path):
            with open(path, "wb") as stream:
                stream.write(data)
            return
        atomic_file.replace(os.path.realpath(path), data, mode=_mode(path) if mode is None else mode, durable=durable)
    except OSError as error:
        folder = shlex.quote(path if os.path.isdir(path) else os.path.dirname(path) or ".")
        raise StorageError(f"cannot write {path}: {error.strerror or error}", next_step=f"ls -ld {folder}") from error


def _mode(path: str) -> int:
    """Return the permissions of the file, or those of a new one."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _refuse_a_foreign_link(path: str) -> None:
    for _ in range(40):  # as many as the kernel follows
        if not os.path.islink(path):
            return
        if (owner := os.lstat(path).st_uid) not in (0, os.geteuid()):
            raise StorageError(
                f"cannot write {path}: it is a link that user {owner} made",
                next_step=f"rm {shlex.quote(path)}, or choose a folder that only you can write in",
            )
        path = os.path.join(os.path.dirname(path), os.readlink(path))


def refuse_foreign(path: str, *, force: bool, fresh: str = "") -> None:
    """Raise ForeignFileError for an existing file that Aliquot did not write, unless ``force`` or its content equals
    ``fresh``. Other problems are left for the writer to report.
    """
    if force or not os.path.isfile(path):
        return
    try:
        with open(path, "rb") as stream:
            text = stream.read(_SHOWN).decode(errors="replace")
    except PermissionError:
        raise _refusal(path, "exists, and you cannot read it") from None
    except OSError:
        return
    if fresh in (text, marked(text), marked_json(text)):
        return
    if text.startswith(_MARK):
        first, _, rest = text.partition("\n")
        if first != f"{_MARK}{_checksum(rest)}":
            raise _refusal(path, _EDITED)
    elif text.strip() and not text.startswith(_METRICS):
        _refuse_foreign_json(path, text)


def _refuse_foreign_json(path: str, text: str) -> None:
    """Refuse a JSON file that Aliquot did not write byte for byte as it is. Files in mig-parted's format are refused:
    an edit would leave no trace in them.
    """
    from aliquot.core.config.file import JSON_MARK

    plain = _object(text)
    same = text.rstrip("\n") == _encoded(plain)
    if JSON_MARK in plain:
        if not same or plain.pop(JSON_MARK) != _member(plain):
            raise _refusal(path, _EDITED)
        return
    ours = str(plain.get("apiVersion")).startswith("aliquot/") or plain.keys() == {"Version", "MigState"}
    if plain.keys() == {"version", "mig-configs"} and same:
        raise _refusal(path, "exists, and JSON of mig-parted's format, unlike YAML, cannot show that Aliquot wrote it")
    if not ours or not same:
        raise _refusal(path, "exists, and does not show that Aliquot wrote it")


def _refusal(path: str, why: str) -> ForeignFileError:
    return ForeignFileError(
        f"{path} {why}: it was left as it is", next_step="name another file, or add --force to replace it"
    )


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def _member(plain: dict[str, Any]) -> dict[str, str]:
    return {"writer": "aliquot", "checksum": _checksum(_encoded(plain))}


def _object(text: str) -> dict[str, Any]:
    """Return the JSON object of a text, or an empty one."""
    import msgspec

    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return plain if isinstance(plain, dict) else {}


def _encoded(plain: dict[str, Any]) -> str:
    return encoded(plain, "json")
