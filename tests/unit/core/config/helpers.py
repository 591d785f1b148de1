"""Short helpers for tests of configs."""

from __future__ import annotations

from collections import Counter

from aliquot.core.config.load import load
from aliquot.core.config.select.named_config import select
from aliquot.core.model.desired import Desired, DesiredGpu
from aliquot.core.model.inventory import Inventory
from aliquot.errors import ConfigError


def faults_of(text: str, *, compat: bool = False) -> tuple[str, ...]:
    """Return the errors of a text that must not load, without the source's name; none if it loads."""
    try:
        load(text, "f", compat=compat)
    except ConfigError as error:
        return tuple(line.removeprefix("f:") for line in error.details or (error.brief,))
    return ()


def desired_for(text: str, node: Inventory, name: str | None = None, *, compat: bool = False) -> Desired:
    return select(load(text, "f", compat=compat), name, node)


def counts(desired_gpu: DesiredGpu) -> Counter[str]:
    """Return the requested geometry, by GPU instance profile."""
    return Counter(i.name for i in desired_gpu.instances or ())


def parted(*entries: str) -> str:
    """Build a mig-parted file with one named config of these entries, each in flow style."""
    return "version: v1\nmig-configs:\n  c:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries)


def native(*entries: str) -> str:
    """Build a native file with one named config of these entries, each in flow style."""
    return "version: aliquot/v1\nconfigs:\n  c:\n" + "".join(f"  - {{{entry}}}\n" for entry in entries)
