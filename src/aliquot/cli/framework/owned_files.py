"""Files that a person names with ``--out``: one that Aliquot did not write is replaced only with ``--force``."""

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
"""Bytes that are read of a file: larger ones are not ours."""


def marked(body: str) -> str:
    """Put a line before a YAML document that says who wrote it, and that later tells an edited one."""
    return f"{_MARK}{_checksum(body)}\n{body}"


def marked_json(body: str) -> str:
    """Put a member into a JSON object that says who wrote it, and that later tells an edited one; nothing into formats
    that have no room for it, mig-parted's above all, and into what is no such object.
    """
    from aliquot.core.config.file import JSON_MARK, NATIVE

    plain = _object(body)
    if plain.get("version") != NATIVE and not plain.keys() >= {"schema", "family", "profiles"}:
        return body
    return f"{_encoded({JSON_MARK: _member(plain), **plain})}\n"


def save(path: str, text: str, *, force: bool) -> None:
    """Write a whole file or none: a reader never sees half of it. Raises ForeignFileError for a file that Aliquot did
    not write, unless ``force``; StorageError, also where another user's link is in that place: it could make root write
    any file.
    """
    from aliquot.foundation import atomic_file

    try:
        _refuse_a_foreign_link(path)
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w") as stream:
                stream.write(text)
            return
        os.stat(os.path.dirname(path) or ".")  # a misspelt folder is not made
        refuse_foreign(path, force=force, fresh=text)
        atomic_file.replace(os.path.realpath(path), text.encode(), mode=_mode(path), durable=False)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror or error}") from error


def _mode(path: str) -> int:
    """The permissions that the file has; those of a new one where there is none."""
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
    """Raise ForeignFileError where a file of that name has content that Aliquot did not write, unless ``force`` or what
    is ``fresh`` says the same. What is not a file, or cannot be written, is left to the writing to report.
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
    """Let documents of ours pass, and checkpoints, in the very characters that Aliquot writes. Files of mig-parted's
    format do not: a careful edit would leave no trace in them.
    """
    from aliquot.core.config.file import JSON_MARK

    plain = _object(text)
    same = text.rstrip("\n") == _encoded(plain)
    if JSON_MARK in plain:
        if not same or plain.pop(JSON_MARK) != _member(plain):
            raise _refusal(path, _EDITED)
        return
    ours = str(plain.get("apiVersion")).startswith("aliquot/") or plain.keys() == {"Version", "MigState"}
    if not ours or not same:
        raise _refusal(path, "exists, and nothing in it says that Aliquot wrote it")


def _refusal(path: str, why: str) -> ForeignFileError:
    return ForeignFileError(
        f"{path} {why}: it was left as it is", next_step="name another file, or add --force to replace it"
    )


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def _member(plain: dict[str, Any]) -> dict[str, str]:
    return {"writer": "aliquot", "checksum": _checksum(_encoded(plain))}


def _object(text: str) -> dict[str, Any]:
    """The JSON object that a text is, an empty one for any other text."""
    import msgspec

    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return {}
    return plain if isinstance(plain, dict) else {}


def _encoded(plain: dict[str, Any]) -> str:
    return encoded(plain, "json")
