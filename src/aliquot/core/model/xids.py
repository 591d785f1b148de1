"""XID errors: which of them make a device unfit for the next container, and which devices each affects. Pure.

XIDs of applications do not harm the GPU. Their list, and the two variables that change it, are those of NVIDIA's device
plugin (0.20).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.foundation.decimals import decimal

APPLICATION = frozenset({13, 31, 43, 45, 68, 109})
"""Graphics engine exception, page fault, stopped processing, preemptive cleanup, video processor exception, context
switch timeout.
"""
DISABLE = "DP_DISABLE_HEALTHCHECKS"
ENABLE = "DP_ENABLE_HEALTHCHECKS"
_ALL = ("all", "xids")


class Xid(msgspec.Struct, frozen=True):
    """An XID error. ``gpu`` is a PCI address."""

    gpu: str
    code: int
    instance: int | None = None
    """None if the driver could not attribute the error. The same holds for ``compute_instance``."""
    compute_instance: int | None = None

    def __str__(self) -> str:
        where = "" if self.instance is None else f", GPU instance {self.instance}"
        where += "" if self.compute_instance is None else f", compute instance {self.compute_instance}"
        return f"XID {self.code} on {self.gpu}{where}"


class XidPolicy(msgspec.Struct, frozen=True):
    """The XIDs that count. Enabling, by number or for all, takes precedence over disabling."""

    disabled: frozenset[int] = APPLICATION
    enabled: frozenset[int] = frozenset()
    none: bool = False
    every: bool = False

    @property
    def off(self) -> bool:
        """True if no XID can count, so that there is nothing to watch."""
        return self.none and not self.enabled and not self.every

    def counts(self, code: int) -> bool:
        if self.every or code in self.enabled:
            return True
        return not self.none and code not in self.disabled


def policy(environment: Mapping[str, str]) -> tuple[XidPolicy, tuple[str, ...]]:
    """Return the policy from ``DP_DISABLE_HEALTHCHECKS`` and ``DP_ENABLE_HEALTHCHECKS``, and sentences about invalid
    words.

    Each variable holds ``all``, ``xids``, or numbers separated by commas.
    """
    disabled, none, wrong = _numbers(environment, DISABLE)
    enabled, every, more = _numbers(environment, ENABLE)
    return XidPolicy(APPLICATION | disabled, enabled, none, every), wrong + more


def _numbers(environment: Mapping[str, str], name: str) -> tuple[frozenset[int], bool, tuple[str, ...]]:
    words = [word.strip().lower() for word in environment.get(name, "").split(",")]
    words = [word for word in words if word]
    if any(word in _ALL for word in words):
        return frozenset(), True, ()
    numbers = {word: decimal(word) for word in words}
    wrong = tuple(
        f"{name}: ignoring {word[:20]!r}, which is not an XID" for word, xid in numbers.items() if xid is None
    )
    return frozenset(xid for xid in numbers.values() if xid is not None), False, wrong


def unhealthy(xids: Iterable[Xid], inventory: Inventory) -> frozenset[str]:
    """Return the UUIDs that must not be given to a container. The UUID of a GPU stands for everything on it.

    An XID of a GPU instance affects all MIG devices in it. An XID of an instance that no longer exists affects nothing.
    """
    found: set[str] = set()
    for xid in xids:
        gpu = next((g for g in inventory.gpus if g.pci == xid.gpu), None)
        if gpu is None:
            continue
        if xid.instance is None:
            found.add(gpu.uuid)
            continue
        instance = gpu.instance(xid.instance)
        if instance is not None:
            inside = instance.compute_instances
            found |= {c.uuid for c in inside if xid.compute_instance in (None, c.id) and c.uuid}
    return frozenset(found)
