"""Requests for vGPUs as text: ``NVIDIA A2-4Q*4``, ``A2-4Q:4``, ``id:746:4``, ``none``."""

from __future__ import annotations

import msgspec

from aliquot.foundation.decimals import decimal

MAX_VGPUS = 64
"""More vGPUs than any GPU can hold: the driver tracks at most 64 virtual functions of one."""

NONE = "none"
"""The request for no vGPUs: virtual functions stay."""

SUFFIXES = ("MEALL", "NOME", "ME", "GFX")
"""Attributes that vgpu-device-manager accepts after the series, longer ones first."""


class VgpuRequest(msgspec.Struct, frozen=True):
    """A request for ``count`` vGPUs of a type by its full name, its short name or its id.

    ``base_name`` is the name without a MIG attribute, if the format has these. It counts if no type has the whole name.
    """

    name: str
    line: int
    column: int
    count: int = 1
    base_name: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, self.base_name) if self.base_name else (self.name,)

    @property
    def id(self) -> int | None:
        """The id of a type that was requested by id: ``id:746`` or, as in the mdev tree, ``nvidia-746``."""
        for prefix in ("id:", "nvidia-"):
            if self.name.startswith(prefix):
                return decimal(self.name.removeprefix(prefix))
        return None


def comma_separated(text: str) -> list[tuple[int, str]]:
    """Split at commas; return each part with its column."""
    found = []
    column = 1
    for part in text.split(","):
        found.append((column + len(part) - len(part.lstrip()), part.strip()))
        column += len(part) + 1
    return found


def parse_vgpu_request(text: str, column: int) -> VgpuRequest:
    """Parse ``TYPE[*COUNT]`` or ``TYPE[:COUNT]``. Raises ValueError with a sentence."""
    mark = "id:" if text.startswith("id:") else ""
    text = text.removeprefix(mark)
    name, star, count = text.partition("*")
    if not star:
        name, star, count = text.partition(":")
    name = mark + " ".join(name.split())
    if name.isdigit():
        raise ValueError(f"{name} is a number: write id:{name}, or the type's name")
    if not name:
        raise ValueError("a vGPU type is missing (expected for example A2-4Q:4, or none)")
    wanted = decimal(count.strip()) if star else 1
    if wanted is None or not 0 < wanted <= MAX_VGPUS:
        raise ValueError(f"the count of {name!r} must be a whole number from 1 to {MAX_VGPUS}")
    return VgpuRequest(name, 0, column, wanted)


def without_mig_attribute(name: str) -> str:
    """Return the name without its MIG attribute, empty if it has none: ``DC-1-24Q`` for ``DC-1-24QGFX``."""
    for suffix in SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return ""
