"""Identity: a PCI address or a UUID, never an index."""

from __future__ import annotations

import re
from collections.abc import Iterable

_PCI = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")


def pci_address(text: str) -> str:
    """Return the canonical form ``dddd:bb:dd.f``, in lower case, of any spelling of a PCI address.

    NVML prints an eight-digit domain (``00000000:07:00.0``), sysfs prints four digits. Raises ValueError for anything
    else.
    """
    match = _PCI.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a PCI address: {text!r}: use a form like 0000:07:00.0")
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}.{function}".lower()


def index_ranges(indexes: Iterable[int]) -> str:
    """Return indexes as text, ``0-3, 5``."""
    runs: list[list[int]] = []
    for number in sorted(indexes):
        if runs and runs[-1][-1] + 1 == number:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def device_filter(text: str) -> tuple[int, int | None]:
    """Parse a mig-parted device filter: ``0x<device><vendor>`` with an optional ``:0x<subdevice><subvendor>``.

    Accepts every base that Go's parser reads by prefix (``0x``, ``0b``, ``0o``, leading ``0``, decimal). Raises
    ValueError for anything else.
    """
    primary, colon, subsystem = text.strip().partition(":")
    return _packed(primary), _packed(subsystem) if colon else None


def _packed(text: str) -> int:
    base = 8 if re.fullmatch(r"0[0-7]+", text) else 0
    value = int(text, base)
    if not 0 <= value <= 0xFFFFFFFF:
        raise ValueError(f"not a 32-bit PCI id: {text!r}")
    return value


def packed_pci_id(value: int) -> str:
    """Format a packed PCI id as mig-parted and ``nvidia-smi --query-gpu=pci.device_id`` write it."""
    return f"0x{value:08X}"
