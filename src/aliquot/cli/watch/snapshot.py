"""A snapshot of a node, ready to show."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.core.model.inventory import Inventory


class WatchSnapshot(msgspec.Struct, frozen=True):
    """An ``inventory``, and what a verb shows of it: ``document`` for programs, ``lines`` of columns for people."""

    inventory: Inventory
    document: dict[str, Any]
    lines: tuple[tuple[str, ...], ...]

    @property
    def text(self) -> str:
        return "\n".join("".join(columns).rstrip() for columns in self.lines)
