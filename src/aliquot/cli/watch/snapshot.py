"""What a verb shows of one look at a node."""

from __future__ import annotations

from typing import Any

import msgspec

from aliquot.core.model.inventory import Inventory


class WatchSnapshot(msgspec.Struct, frozen=True):
    """For programs (``document``) and for people (``text``); ``inventory`` is what both were made from."""

    inventory: Inventory
    document: dict[str, Any]
    text: str
