"""Parsing and formatting of whole numbers."""

from __future__ import annotations


def decimal(text: str, digits: int = 9) -> int | None:
    """Return the value of a string of ASCII digits, at most ``digits`` long; None for anything else. ``str.isdigit``
    accepts characters that ``int`` refuses, and ``int`` refuses numbers of thousands of digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def counted(number: int, word: str) -> str:
    """Return ``1 file``, ``2 files``."""
    return f"{number} {word}" + ("" if number == 1 else "s")
