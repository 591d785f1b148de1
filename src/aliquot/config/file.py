"""A configuration file as values: named configs of entries, whichever format they were written in."""

from __future__ import annotations

import msgspec

from aliquot.config.selector import Selector
from aliquot.config.wish import Wish

NATIVE = "aliquot/v1"
MIG_PARTED = "mig-parted/v1"


class Entry(msgspec.Struct, frozen=True):
    """What some GPUs should become. ``mig`` says whether MIG mode is wanted; ``wishes`` what is to be there then.
    ``later`` names a kind of share that this version cannot make: the entry is understood and blocks.
    """

    selector: Selector
    mig: bool
    wishes: tuple[Wish, ...]
    line: int
    column: int
    later: str = ""


class ConfigFile(msgspec.Struct, frozen=True):
    """``source`` is the file's name for messages, ``schema`` one of NATIVE and MIG_PARTED."""

    source: str
    schema: str
    configs: dict[str, tuple[Entry, ...]]
    compat: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """The named configs, in the order of the file."""
        return tuple(self.configs)
