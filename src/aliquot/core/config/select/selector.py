"""The selector of an entry: all GPUs, or those that match every given term."""

from __future__ import annotations

import msgspec

from aliquot.core.model.ids import device_filter
from aliquot.core.model.inventory import Gpu
from aliquot.foundation.decimals import decimal

Filter = tuple[int, int | None]
"""A packed PCI id and optionally a packed subsystem id."""

NEVER: Filter = (0, None)
"""The id, which no GPU has, that mig-parted uses for a filter that it cannot read."""

MAX_INDEX = 1023


class Selector(msgspec.Struct, frozen=True):
    """The terms of a selector; None for one that is not given. ``products`` are normalized names (`product_key`),
    ``uuids`` lower case.
    """

    indexes: tuple[int, ...] | None = None
    uuids: tuple[str, ...] | None = None
    pcis: tuple[str, ...] | None = None
    products: tuple[str, ...] | None = None
    filters: tuple[Filter, ...] | None = None

    @property
    def everything(self) -> bool:
        return self == ALL

    def class_matches(self, gpu: Gpu) -> bool:
        """Report whether the GPU matches the terms for a kind of GPU: product and device filter."""
        if self.products is not None and product_key(gpu.product) not in self.products:
            return False
        return self.filters is None or any(_filter_matches(f, gpu) for f in self.filters)

    def matches(self, gpu: Gpu) -> bool:
        return (
            self.class_matches(gpu)
            and (self.indexes is None or gpu.index in self.indexes)
            and (self.uuids is None or gpu.uuid.lower() in self.uuids)
            and (self.pcis is None or gpu.pci in self.pcis)
        )


ALL = Selector()


def _filter_matches(wanted: Filter, gpu: Gpu) -> bool:
    primary, subsystem = wanted
    if packed(gpu.pci_device) != primary:
        return False
    return subsystem is None or packed(gpu.subsystem) == subsystem


def packed(text: str) -> int | None:
    """Return a GPU's own packed PCI id as a number, None if it has none."""
    try:
        return device_filter(text)[0]
    except ValueError:
        return None


def product_key(name: str) -> str:
    """Normalize a product's name: without NVIDIA, lower case, other characters as ``-`` (``a100-sxm4-40gb``)."""
    words = "".join(c if c.isalnum() else "-" for c in name.lower())
    return words.removeprefix("nvidia-").strip("-")


def index_list(text: str) -> tuple[int, ...]:
    """Parse ``0-3``, ``7`` or ``0,2-3``. Raises ValueError with a sentence."""
    found: list[int] = []
    for part in text.replace(" ", "").split(","):
        first, dash, last = part.partition("-")
        low, high = decimal(first), decimal(last if dash else first)
        if low is None or high is None:
            raise ValueError(f"{text!r} is not a list of GPU indexes (expected for example 0-3 or 0,2,5)")
        if not low <= high <= MAX_INDEX:
            raise ValueError(f"{part!r} is not a range of GPU indexes from 0 to {MAX_INDEX}")
        if set(found) & set(range(low, high + 1)):
            raise ValueError(f"{text!r} names a GPU index more than once")
        found += range(low, high + 1)
    return tuple(found)
