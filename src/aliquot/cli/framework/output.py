"""Results on stdout, in the format that was asked for; everything else on stderr."""

from __future__ import annotations

import os
import shlex
import stat
import sys
from typing import Any

import msgspec

from aliquot.cli.framework import streams
from aliquot.errors import StorageError, UsageError


def document(value: Any) -> dict[str, Any]:
    """A model value as plain data, ``apiVersion`` and ``kind`` first."""
    plain = msgspec.to_builtins(value)
    head = {key: plain[key] for key in ("apiVersion", "kind") if key in plain}
    return head | {key: plain[key] for key in plain if key not in head}


def build(kind: str, **fields: Any) -> dict[str, Any]:
    """A document of our own."""
    from aliquot.core.model.inventory import API_VERSION

    return {"apiVersion": API_VERSION, "kind": kind} | {k: msgspec.to_builtins(v) for k, v in fields.items()}


def encoded(plain: Any, form: str) -> str:
    """Plain data as JSON (one object, indented) or YAML, without a final newline."""
    if form == "json":
        return msgspec.json.format(msgspec.json.encode(plain), indent=2).decode()
    import yaml

    dumped: str = yaml.safe_dump(msgspec.to_builtins(plain), sort_keys=False, allow_unicode=True, width=120)
    return dumped.rstrip("\n")


def emit(plain: Any, form: str, text: str) -> None:
    """Prints a result: ``text`` for people, else ``plain`` encoded."""
    line = text if form == "text" else encoded(plain, form)
    if line:
        streams.result(line)


def save(path: str, text: str, *, force: bool) -> None:
    """Write a whole file or none: a reader never sees half of it. Raises NotOursError for a file that Aliquot did not
    write, unless ``force``; StorageError, also where another user's link is in that place: it could make root write any
    file.
    """
    from aliquot.cli.framework import owned_files
    from aliquot.foundation import atomic_file

    try:
        _refuse_a_foreign_link(path)
        if os.path.exists(path) and not os.path.isfile(path):
            with open(path, "w") as stream:
                stream.write(text)
            return
        os.stat(os.path.dirname(path) or ".")  # a misspelt folder is not made
        owned_files.refuse_foreign(path, force=force, fresh=text)
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


def read_text(path: str, what: str, limit_mib: int = 16) -> str:
    """A user's file, or stdin for ``-``. Raises UsageError if it is not there, too large or not text."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read((limit_mib << 20) + 1)
        else:
            with open(path, "rb") as stream:
                data = stream.read((limit_mib << 20) + 1)
    except OSError as error:
        folder = os.path.dirname(os.path.abspath(path))
        raise UsageError(
            f"cannot read the {what} {path}: {error.strerror or error}", next_step=f"ls -l {shlex.quote(folder)}"
        ) from error
    name = "stdin" if path == "-" else path
    if len(data) > limit_mib << 20:
        raise UsageError(f"the {what} {name} is larger than {limit_mib} MiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"the {what} {name} is not UTF-8 text (byte {error.start})") from error
