"""The functions that NVML exports, by the first driver branch that has each (``shim/symbols.txt``)."""

from __future__ import annotations

import os
import re
from functools import cache

_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "shim", "symbols.txt")
_OLDEST = 450


@cache
def functions() -> dict[str, int]:
    """Return the first driver branch of each function."""
    with open(_FILE, encoding="utf-8") as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return {row[0]: int(row[1]) if len(row) > 1 else _OLDEST for row in rows}


def missing(driver_major: int) -> frozenset[str]:
    """Return the functions that a driver of a branch does not export."""
    return frozenset(name for name, since in functions().items() if since > driver_major)


@cache
def _calls() -> dict[str, int]:
    """Return the first driver branch of each call in any version: a name without NVML's prefix and suffix."""
    found: dict[str, int] = {}
    for name, since in functions().items():
        call = re.sub(r"_v\d+$", "", name).removeprefix("nvml")
        found[call] = min(since, found.get(call, since))
    return found


def known(call: str, driver_major: int) -> bool:
    """Return whether a driver of a branch has a call; always true for calls that are not NVML's."""
    return _calls().get(call, 0) <= driver_major
