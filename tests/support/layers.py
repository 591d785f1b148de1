"""Name the layer of a test: its folder below ``tests``, or below ``tests/system`` and ``tests/laws``."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
GROUPS = ("laws", "system")
"""Folders that hold layers."""


def layer(path: Path) -> str:
    """Return the layer of a test's file."""
    first, second = path.parts[len(TESTS.parts) : len(TESTS.parts) + 2]
    return second if first in GROUPS else first


def folders() -> list[Path]:
    """Return the folder of each layer."""
    places = (TESTS, *(TESTS / group for group in GROUPS))
    return sorted(path for place in places for path in place.iterdir() if path.is_dir() and path.name not in GROUPS)
