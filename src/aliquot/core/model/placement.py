"""A placement ``start:size``: the first memory slice and the number of slices; and texts that name placements.

This is NVML's meaning. The unit differs per GPU family.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

_Value = TypeVar("_Value", bound=msgspec.Struct)


class Placement(msgspec.Struct, frozen=True, order=True):
    """A range of ``size`` memory slices from ``start``. Printed ``4:4``."""

    start: int
    size: int

    @property
    def mask(self) -> int:
        """The slices as bits: slice n is bit n."""
        return ((1 << self.size) - 1) << self.start

    def __str__(self) -> str:
        return f"{self.start}:{self.size}"

    @classmethod
    def parse(cls, text: str) -> Placement:
        """Parse the text that ``str`` returns. Raises ValueError."""
        start, _, size = text.partition(":")
        return cls(int(start), int(size))


PartOfText = str | Placement | tuple[str, Placement]
"""Words, a placement (``4:4``), or a profile and its placement (``3g.20gb at 4:4``)."""


class PlacedText(str):
    """A text for the command line with its placements as values, so that another surface can show them otherwise."""

    __slots__ = ("parts",)
    parts: tuple[PartOfText, ...]

    def __new__(cls, *parts: PartOfText) -> PlacedText:
        """Join parts. Those of another such text become parts of this one."""
        texts = (f"{part[0]} at {part[1]}" if isinstance(part, tuple) else str(part) for part in parts)
        made = super().__new__(cls, "".join(texts))
        made.parts = tuple(p for part in parts for p in (part.parts if isinstance(part, PlacedText) else (part,)))
        return made

    @classmethod
    def joined(cls, separator: str, parts: Iterable[PartOfText]) -> PlacedText:
        return cls(*[p for part in parts for p in (separator, part)][1:])


def with_text(value: _Value, text: str) -> _Value:
    """Return a value that was just built with ``str(text)``, and let it remember the text's placements.

    They are for this process: encoded, the value has only the words.
    """
    value.__dict__["text"] = text
    return value


def text_of(value: msgspec.Struct, words: str) -> str:
    """Return a value's words, with the placements in them if it remembers them."""
    known: str = value.__dict__.get("text", words)
    return known


def slices(mask: int) -> tuple[int, ...]:
    """Return the slice numbers in a mask, ascending."""
    return tuple(n for n in range(mask.bit_length()) if mask >> n & 1)
