"""Quantities of Kubernetes (``24``, ``131858088Ki``, ``1k``, ``500m``): parsed, added and formatted.

The canonical form of a sum has the largest unit that needs no fraction, in the kind of units (binary or decimal) of its
first part. Less than a thousandth is rounded up. Source: Kubernetes API reference, "Quantity".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache

import msgspec

_TEXT = re.compile(r"(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))(?P<unit>[KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?", re.ASCII)
MOST_CHARACTERS = 64
"""Maximum length of a quantity. Python refuses to convert a text with thousands of digits."""
_BINARY = {unit: 1024**n for n, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


class Quantity(msgspec.Struct, frozen=True):
    """A quantity of Kubernetes."""

    value: Fraction
    binary: bool = False
    """Formatted in Ki, Mi or Gi if possible."""

    def __str__(self) -> str:
        if self.binary and self.value.denominator == 1 and abs(self.value) >= 1024:
            return _text(self.value, [(unit, Fraction(size)) for unit, size in _BINARY.items()])
        rounded = Fraction(-((-self.value * 1000) // 1), 1000)
        return _text(rounded, [(unit, Fraction(10) ** power) for unit, power in _DECIMAL.items() if power >= -3])


def read(text: str) -> Quantity | None:
    """Parse a quantity; None if the text is not one."""
    return _read(text) if len(text) <= MOST_CHARACTERS else None


@lru_cache(maxsize=1024)  # the slices of a node repeat few texts thousands of times
def _read(text: str) -> Quantity | None:
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    number, unit = Fraction(found["number"]), found["unit"] or ""
    if unit in _BINARY:
        return Quantity(number * _BINARY[unit], True)
    power = _DECIMAL[unit] if unit in _DECIMAL else int(unit[1:])
    return Quantity(number * Fraction(10) ** power)


def total(texts: Iterable[str]) -> Quantity:
    """Add quantities, in the kind of units of the first. Invalid texts are ignored."""
    parts = [found for text in texts if (found := read(text)) is not None]
    first = next(iter(parts), Quantity(Fraction(0)))
    return Quantity(sum((part.value for part in parts), Fraction(0)), first.binary)


def _text(value: Fraction, units: list[tuple[str, Fraction]]) -> str:
    """Format with the largest unit that leaves a whole number."""
    fitting = [(unit, size) for unit, size in units if (value / size).denominator == 1 and value]
    unit, size = fitting[-1] if fitting else ("", Fraction(1))
    return f"{value / size}{unit}"
