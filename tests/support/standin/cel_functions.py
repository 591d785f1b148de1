"""CEL's functions, as far as the stand-in has them."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from support.standin import cel_amounts


class CelError(ValueError):
    """An expression without a value: a missing key, or no overload for the types."""


class Optional(msgspec.Struct, frozen=True):
    """A value that may be missing, from ``a.?b`` and ``a[?'b']``."""

    there: bool
    value: Any = None


NOTHING = Optional(False)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise CelError("no such overload")
    return value


def _size(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise CelError("no such overload")
    return len(value)


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    raise CelError("no such overload")


def _int(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise CelError(f'strconv.ParseInt: parsing "{value}": invalid syntax') from None


def _split(text: str, by: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    return _text(text).split(_text(by), most - 1 if most > 0 else -1) if by else list(text)


def _or_value(optional: Any, other: Any) -> Any:
    if not isinstance(optional, Optional):
        raise CelError("no such overload")
    return optional.value if optional.there else other


def _value(optional: Any) -> Any:
    if not isinstance(optional, Optional) or not optional.there:
        raise CelError("optional.none() dereference")
    return optional.value


def _type(value: Any) -> str:
    known: dict[type, str] = {bool: "bool", int: "int", float: "double", str: "string", list: "list", dict: "map"}
    return known.get(type(value), "null_type")


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "size": _size,
    "string": _string,
    "int": _int,
    "type": _type,
    "dyn": lambda v: v,
    **cel_amounts.FUNCTIONS,
}
METHODS: dict[str, Callable[..., Any]] = {
    "size": _size,
    "startsWith": lambda text, part: _text(text).startswith(_text(part)),
    "endsWith": lambda text, part: _text(text).endswith(_text(part)),
    "contains": lambda text, part: _text(part) in _text(text),
    "matches": lambda text, form: re.search(_text(form), _text(text)) is not None,
    "split": _split,
    "join": lambda rows, by="": _text(by).join(_text(row) for row in rows),
    "lowerAscii": lambda text: _text(text).lower(),
    "upperAscii": lambda text: _text(text).upper(),
    "trim": lambda text: _text(text).strip(),
    "replace": lambda text, old, new: _text(text).replace(_text(old), _text(new)),
    "substring": lambda text, start, end=None: _text(text)[start:end],
    "indexOf": lambda text, part: _text(text).find(_text(part)),
    "lastIndexOf": lambda text, part: _text(text).rfind(_text(part)),
    "orValue": _or_value,
    "hasValue": lambda optional: isinstance(optional, Optional) and optional.there,
    "value": _value,
    **cel_amounts.METHODS,
}
