"""The health of a node's GPUs and MIG devices, from the XIDs that the driver reports.

``poll`` is called about once a second, from a worker thread, and never waits for an event: the driver queues them. A
failure lasts as long as what it affects: an instance until it is destroyed, a GPU until its reset (``forget``). All
failures end with the agent. The driver has no event for recovery.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.xids import Xid, XidPolicy, unhealthy

XidLocation = tuple[str, int | None, int | None]


class XidEvents(Protocol):
    """A source of XIDs. ``unwatched`` are the PCI addresses of GPUs that report none."""

    @property
    def unwatched(self) -> tuple[str, ...]: ...

    def take(self) -> list[Xid]:
        """Return what was reported since the last call. Raises HardwareError."""
        ...


class Health:
    """The devices that are unhealthy according to the driver. Threads may share it."""

    def __init__(self, events: XidEvents, policy: XidPolicy) -> None:
        self._events = events
        self._policy = policy
        self._active: dict[XidLocation, Xid] = {}
        self._lock = threading.Lock()

    @property
    def active_xids(self) -> tuple[Xid, ...]:
        """The XIDs that make a device unhealthy now, the latest of each location."""
        with self._lock:
            return tuple(self._active.values())

    @property
    def unwatched(self) -> tuple[str, ...]:
        return self._events.unwatched

    def poll(self, inventory: Inventory) -> frozenset[str]:
        """Return the UUIDs of devices that must not be allocated to a container now; a GPU's UUID includes everything
        on it. Failures of instances that are no longer in the inventory end here. Raises HardwareError.
        """
        new_xids = [] if self._policy.off else self._events.take()
        with self._lock:
            for xid in new_xids:
                if self._policy.counts(xid.code):
                    self._active[xid.gpu, xid.instance, xid.compute_instance] = xid
            active = {place: x for place, x in self._active.items() if x.instance is None or unhealthy([x], inventory)}
            self._active = active
            return unhealthy(active.values(), inventory)

    def adopt(self, previous: Health) -> None:
        """Take over the failures that were known when the session was closed: closing it heals nothing."""
        with self._lock:
            self._active = previous._active | self._active

    def forget(self, pci: str, instance: int | None = None) -> None:
        """End the failures of a GPU that was reset, or of one of its instances that was destroyed. An instance that is
        created again at the same placement has the same ids.
        """
        with self._lock:
            gone = [p for p in self._active if p[0] == pci and instance in (None, p[1])]
            for place in gone:
                del self._active[place]


class NoXidEvents:
    """An implementation of ``nvml.health.XidEvents`` for GPUs whose XIDs cannot be received."""

    def __init__(self, gpus: Callable[[], tuple[str, ...]]) -> None:
        self._gpus = gpus

    @property
    def unwatched(self) -> tuple[str, ...]:
        return self._gpus()

    def take(self) -> list[Xid]:
        return []
