"""Results on stdout, in the requested format; everything else on stderr."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

import msgspec

from aliquot.cli.framework import streams
from aliquot.core.model.encoding import encode, to_builtins
from aliquot.errors import UsageError


def document(value: Any) -> dict[str, Any]:
    """Return a model value as plain data, ``apiVersion`` and ``kind`` first."""
    plain = to_builtins(value)
    head = {key: plain[key] for key in ("apiVersion", "kind") if key in plain}
    return head | {key: plain[key] for key in plain if key not in head}


def build(kind: str, **fields: Any) -> dict[str, Any]:
    """Return a document of Aliquot."""
    from aliquot.core.model.inventory import API_VERSION

    return {"apiVersion": API_VERSION, "kind": kind} | {k: to_builtins(v) for k, v in fields.items()}


def encoded(plain: Any, form: str) -> str:
    """Encode plain data as JSON (one object, indented) or YAML, without a final newline."""
    if form == "json":
        return msgspec.json.format(encode(plain), indent=2).decode()
    import yaml

    dumped: str = yaml.safe_dump(to_builtins(plain), sort_keys=False, allow_unicode=True, width=120)
    return dumped.rstrip("\n")


def emit(plain: Any, form: str, text: str) -> None:
    """Print a result: ``text`` for people, else ``plain`` encoded."""
    line = text if form == "text" else encoded(plain, form)
    if line:
        streams.result(line)


def read_text(path: str, what: str, limit_mib: int = 16) -> str:
    """Read a user's file, or stdin for ``-``. Raises UsageError if it is missing, too large or not text."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read((limit_mib << 20) + 1)
        else:
            with open(path, "rb") as stream:
                data = stream.read((limit_mib << 20) + 1)
    except OSError as error:
        folder = path if os.path.isdir(path) else os.path.dirname(os.path.abspath(path))
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
