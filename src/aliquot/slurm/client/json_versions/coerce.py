"""Values of Slurm's JSON whose type changed between versions. A missing value becomes empty, not an error."""

from __future__ import annotations

from typing import Any

Raw = dict[str, Any]

_NO_VALUE = (0xFFFE, 0xFFFF, 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFE, 0xFFFFFFFFFFFFFFFF)
"""Values for "not set" and "infinite" in versions without a wrapper for them."""


def number(value: object) -> int:
    """Parse ``7``, ``7.0`` or ``{"set": true, "infinite": false, "number": 7}``; 0 if it is not set or infinite."""
    if isinstance(value, dict):
        return number(value.get("number")) if value.get("set", True) and not value.get("infinite") else 0
    if isinstance(value, bool) or not isinstance(value, int | float) or value in _NO_VALUE or value < 0:
        return 0
    return int(value)


def words(value: object) -> tuple[str, ...]:
    """Parse a list: ``["a", "b"]`` or ``"a,b"``."""
    parts = value if isinstance(value, list) else text(value).split(",")
    return tuple(str(part) for part in parts if part)


def text(value: object) -> str:
    return value if isinstance(value, str) else ""


def objects(value: object) -> list[Raw]:
    """Return the objects of a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def inner(raw: Raw, key: str) -> Raw:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}
