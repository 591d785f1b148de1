"""Short ways to say what a test wants."""

from __future__ import annotations

from collections import Counter

from aliquot.core.config.load import load
from aliquot.core.config.select.named_config import select
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Inventory
from aliquot.errors import ConfigError


def faults_of(text: str, *, compat: bool = False) -> tuple[str, ...]:
    """The faults of a text that must not load, without the source's name; none if it loads."""
    try:
        load(text, "f", compat=compat)
    except ConfigError as error:
        return tuple(line.removeprefix("f:") for line in error.details or (error.brief,))
    return ()


def wish_for(text: str, node: Inventory, name: str | None = None, *, compat: bool = False) -> Desired:
    return select(load(text, "f", compat=compat), name, node)


def counts(wish: DesiredGpu) -> Counter[str]:
    """The geometry that a wish asks for, by GPU instance profile."""
    return Counter(i.name for i in wish.instances or ())


def parted(*entries: str) -> str:
    """A mig-parted file with one named config of these entries, each in flow style."""
    return "version: v1\nmig-configs:\n  c:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries)


def native(*entries: str) -> str:
    """A native file with one named config of these entries, each in flow style."""
    return "version: aliquot/v1\nconfigs:\n  c:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries)
