"""Files that a person names with ``--out``: one that Aliquot did not write is replaced only with ``--force``."""

from __future__ import annotations

import hashlib
import os

from aliquot.errors import NotOursError

_MARK = "# Written by Aliquot. Checksum of the lines below: "
_METRICS = "# HELP aliquot_"
_SHOWN = 1 << 24
"""Bytes that are read of a file: larger ones are not ours."""


def marked(body: str) -> str:
    """Put a line before a YAML document that says who wrote it, and that later tells an edited one."""
    return f"{_MARK}{_checksum(body)}\n{body}"


def refuse_foreign(path: str, *, force: bool, fresh: str = "") -> None:
    """Raise NotOursError where a file of that name has content that Aliquot did not write, unless ``force`` or what is
    ``fresh`` says the same. What is not a file, or cannot be written, is left to the writing to report.
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
    if fresh in (text, marked(text)):
        return
    if text.startswith(_MARK):
        first, _, rest = text.partition("\n")
        if first != f"{_MARK}{_checksum(rest)}":
            raise _refusal(path, "was edited after Aliquot wrote it")
    elif text.strip() and not text.startswith(_METRICS) and not _document(text):
        raise _refusal(path, "exists, and nothing in it says that Aliquot wrote it")


def _refusal(path: str, why: str) -> NotOursError:
    return NotOursError(
        f"{path} {why}: it was left as it is", next_step="name another file, or add --force to replace it"
    )


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:16]


def _document(text: str) -> bool:
    """Whether it is a document of ours, or a checkpoint, in the very characters that Aliquot writes."""
    import msgspec

    from aliquot.cli.framework.output import encoded

    try:
        plain = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    ours = isinstance(plain, dict) and (
        str(plain.get("apiVersion")).startswith("aliquot/") or plain.keys() == {"Version", "MigState"}
    )
    return ours and text.rstrip("\n") == encoded(plain, "json")
