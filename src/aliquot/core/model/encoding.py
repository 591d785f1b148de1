"""Encoding of values that may hold structured texts. Encoded, these are only their words.

msgspec refuses subclasses of ``str``, so that a value encoded without these functions raises TypeError.
"""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.core.model.structured_text import StructuredText


def encode(value: Any) -> bytes:
    """Return a value as JSON. Raises TypeError for a type that JSON does not have."""
    return msgspec.json.encode(value, enc_hook=_words)


def to_builtins(value: Any) -> Any:
    """Return a value as plain data. Raises TypeError for a type that JSON does not have."""
    return msgspec.to_builtins(value, enc_hook=_words)


def _words(value: object) -> str:
    if isinstance(value, StructuredText):
        return str(value)
    raise TypeError(f"cannot encode a {type(value).__name__}")
