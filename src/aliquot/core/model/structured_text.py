"""Texts for the command line that keep their values, so that another surface can show these otherwise.

A ``StructuredText`` is a ``str``: printed, compared and stored, it is only its words. Code that needs a value of a text
reads it from ``parts``; nothing searches the words for it.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.core.model.placement import Placement


class TextPart(msgspec.Struct, frozen=True):
    """A value in a text. Its string is the words for the command line."""


class GpuPart(TextPart, frozen=True):
    """A GPU in a text, by its PCI address."""

    pci: str

    def __str__(self) -> str:
        return self.pci


class GpuName(GpuPart, frozen=True):
    """A GPU that a sentence names: ``GPU 0000:41:00.0``, then ``end``.

    With an ``end``, the sentence says something about this GPU and goes on after it.
    """

    end: str = ""

    def __str__(self) -> str:
        return f"GPU {self.pci}{self.end}"


class GpuOption(GpuPart, frozen=True):
    """A GPU that a command selects: ``--gpu 0000:41:00.0``."""

    counts_together: bool = False
    """Whether the counts in the command are for all GPUs that it selects together."""

    def __str__(self) -> str:
        return f"--gpu {self.pci}"


Part = str | Placement | tuple[str, Placement] | TextPart
"""Words, a placement (``4:4``), a profile and its placement (``3g.20gb at 4:4``), or another value."""


class StructuredText(str):
    """A text with its values as parts."""

    __slots__ = ("parts",)
    parts: tuple[Part, ...]

    def __new__(cls, *parts: Part) -> StructuredText:
        """Join parts. Those of another such text become parts of this one."""
        texts = (f"{part[0]} at {part[1]}" if isinstance(part, tuple) else str(part) for part in parts)
        made = super().__new__(cls, "".join(texts))
        made.parts = tuple(each for part in parts for each in (parts_of(part) if isinstance(part, str) else (part,)))
        return made

    @classmethod
    def joined(cls, separator: str, parts: Iterable[Part]) -> StructuredText:
        return cls(*[p for part in parts for p in (separator, part)][1:])


def parts_of(text: str) -> tuple[Part, ...]:
    """Return the parts of a text. A text from a file or from another process is one part."""
    return text.parts if isinstance(text, StructuredText) else (text,)
