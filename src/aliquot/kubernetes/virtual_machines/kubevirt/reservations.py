"""What machines were admitted with a moment ago: counted until their objects show it. No clock of its own.

Two machines that come together must not both be promised the last device: the first one's object takes a moment to
come back through the watch.
"""

from __future__ import annotations

from aliquot.kubernetes.virtual_machines.kubevirt.device_demand import VmDemand

PATIENCE_S = 15.0
"""Beyond it, the machine was not made after all: something else refused it."""


class VmReservations:
    """Times are seconds of any clock that only goes forward."""

    def __init__(self, patience_s: float = PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._reserved: dict[tuple[str, str], tuple[VmDemand, float]] = {}

    def reserve(self, demand: VmDemand, now: float) -> None:
        """A machine was admitted, perhaps with nothing; what it was admitted with before no longer counts."""
        self.drop(demand.key)
        if demand.counts:
            self._reserved[demand.key] = (demand, now + self._patience_s)

    def drop(self, key: tuple[str, str]) -> None:
        """The machine was deleted."""
        self._reserved.pop(key, None)

    def observe(self, demand: VmDemand) -> None:
        """What a machine's object says now. Once it shows what the machine was admitted with it counts by itself, and
        a later change to less must not be hidden. An older sight of it, still on its way, changes nothing.
        """
        reserved = self._reserved.get(demand.key)
        if reserved is not None and all(
            demand.counts.get(name, 0) >= count for name, count in reserved[0].counts.items()
        ):
            del self._reserved[demand.key]

    def active(self, now: float) -> tuple[VmDemand, ...]:
        """Those that still count, in the order in which they came."""
        self._reserved = {key: each for key, each in self._reserved.items() if each[1] > now}
        return tuple(demand for demand, _ in self._reserved.values())
