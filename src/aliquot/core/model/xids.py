"""XID errors: which of them make a device unfit for the next container, and which devices each concerns. Pure.

XIDs of the application kind leave the GPU as good as it was; the list is that of NVIDIA's device plugin (0.20), and so
are the two variables that change it.
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
    """One XID. ``gpu`` is a PCI address; ``instance`` and ``compute_instance`` are None where the driver could not
    attribute it.
    """

    gpu: str
    code: int
    instance: int | None = None
    compute_instance: int | None = None

    def __str__(self) -> str:
        where = "" if self.instance is None else f", GPU instance {self.instance}"
        where += "" if self.compute_instance is None else f", compute instance {self.compute_instance}"
        return f"XID {self.code} on {self.gpu}{where}"


class XidPolicy(msgspec.Struct, frozen=True):
    """Which XIDs count. What is enabled by number or as a whole wins over what is disabled."""

    disabled: frozenset[int] = APPLICATION
    enabled: frozenset[int] = frozenset()
    none: bool = False
    every: bool = False

    @property
    def off(self) -> bool:
        """Whether no XID can count, so that nothing need be watched."""
        return self.none and not self.enabled and not self.every

    def counts(self, code: int) -> bool:
        if self.every or code in self.enabled:
            return True
        return not self.none and code not in self.disabled


def policy(environment: Mapping[str, str]) -> tuple[XidPolicy, tuple[str, ...]]:
    """The policy that ``DP_DISABLE_HEALTHCHECKS`` and ``DP_ENABLE_HEALTHCHECKS`` ask for (``all``, ``xids``, or numbers
    with commas between), and sentences about words that are neither.
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
    wrong = tuple(f"{name}: {word[:20]!r} is no XID and is passed over" for word, xid in numbers.items() if xid is None)
    return frozenset(xid for xid in numbers.values() if xid is not None), False, wrong


def unhealthy(xids: Iterable[Xid], inventory: Inventory) -> frozenset[str]:
    """The UUIDs of what must not be given to a container: a GPU's stands for everything on it. An XID of a GPU
    instance concerns all MIG devices in it; one of an instance that is there no more concerns nothing.
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
