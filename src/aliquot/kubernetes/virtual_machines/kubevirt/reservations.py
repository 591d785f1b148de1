"""Demands of VMs that were admitted moments ago, counted until their objects show them. The caller provides the time.

Two VMs that are admitted together must not both get the last device: the first VM's object takes a moment to arrive
through the watch.
"""

from __future__ import annotations

from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand

PATIENCE_S = 15.0
"""After this many seconds without an object, the VM was not created after all: something else rejected it."""


class VmReservations:
    """The reservations. Times are seconds of any monotonic clock."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._reserved: dict[tuple[str, str], tuple[VmDemand, float]] = {}

    def reserve(self, demand: VmDemand, now: float) -> None:
        """Record the demand of an admitted VM. It replaces an earlier demand, also if it is empty."""
        self.drop(demand.key)
        if demand.counts:
            self._reserved[demand.key] = (demand, now + self._patience_s)

    def drop(self, key: tuple[str, str]) -> None:
        """Drop the reservation of a deleted VM."""
        self._reserved.pop(key, None)

    def observe(self, demand: VmDemand) -> None:
        """Drop a reservation once the VM's object shows it.

        From then on the object itself counts, so that a later, smaller request takes effect. An older version of the
        object that arrives late changes nothing.
        """
        reserved = self._reserved.get(demand.key)
        if reserved is not None and all(
            demand.counts.get(name, 0) >= count for name, count in reserved[0].counts.items()
        ):
            del self._reserved[demand.key]

    def active(self, now: float) -> tuple[VmDemand, ...]:
        """Return the demands that still count, in the order of admission."""
        self._reserved = {key: each for key, each in self._reserved.items() if each[1] > now}
        return tuple(demand for demand, _ in self._reserved.values())
