"""A placement ``start:size``: the first memory slice and the number of slices.

This is NVML's meaning. The unit differs per GPU family.
"""

from __future__ import annotations

import msgspec


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


def slices(mask: int) -> tuple[int, ...]:
    """Return the slice numbers in a mask, ascending."""
    return tuple(n for n in range(mask.bit_length()) if mask >> n & 1)
