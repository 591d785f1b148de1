"""Whole numbers that people and files write: a few ASCII digits, and nothing else that Python takes for a number. And
numbers of things, as people read them.
"""

from __future__ import annotations


def decimal(text: str, digits: int = 9) -> int | None:
    """Return the value of up to so many ASCII digits; None for anything else. ``str.isdigit`` is true of characters
    that ``int`` refuses, as it refuses numbers of thousands of digits.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= digits else None


def counted(number: int, word: str) -> str:
    """Return ``1 file``, ``2 files``."""
    return f"{number} {word}" + ("" if number == 1 else "s")
