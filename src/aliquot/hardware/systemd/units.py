"""The state of a unit, and whether it must stop for a change and start again afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.hardware.systemd.errors import BusError, BusLostError
from aliquot.hardware.systemd.names import SYSTEMD, UNIT

if TYPE_CHECKING:  # a user of only the record needs no D-Bus
    from aliquot.hardware.systemd.bus import Bus

RUNNING = ("active", "activating", "reloading", "refreshing")
STARTING_JOBS = ("start", "restart", "try-restart", "reload-or-start")
_SERVICE = f"{SYSTEMD}.Service"
_STOPS_WITH_IT = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
"""Units that systemd stops when it stops this one."""


class StoppedUnit(msgspec.Struct, frozen=True):
    """A unit to start again. ``failed``: it had failed before, so another failed start is only noted."""

    name: str
    failed: bool = False


class StoppedServices(msgspec.Struct, frozen=True):
    """The durable record of the services that a change stops, in the order in which they stop."""

    units: tuple[StoppedUnit, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(unit.name for unit in self.units)

    def merged_with(self, later: StoppedServices) -> StoppedServices:
        """Return both records. Units of the earlier record keep their place: they were running before any of them was
        stopped.
        """
        known = set(self.names)
        return StoppedServices((*self.units, *(unit for unit in later.units if unit.name not in known)))


class UnitState(msgspec.Struct, frozen=True):
    """The state of a unit in systemd's words."""

    name: str
    path: str = ""
    load: str = "not-found"
    """Such as loaded, not-found or masked."""
    active: str = "inactive"
    """Such as active, inactive or failed."""
    enabled: str = ""
    """The state of the unit file."""
    type: str = ""
    job: str = ""
    """The kind of the queued job, or ""."""
    followers: tuple[str, ...] = ()
    """The services that stop with this one."""

    @property
    def running(self) -> bool:
        """The unit runs or is about to. A unit that stops in order to start again counts."""
        return self.active in RUNNING or self.job in STARTING_JOBS

    @property
    def to_stop(self) -> bool:
        """The unit must be stopped, or its stop awaited."""
        return self.running or self.active == "deactivating"

    @property
    def to_start(self) -> StoppedUnit | None:
        """The unit to start again, or None. A running service counts, however it was started, and so does a failed one
        that is enabled. An inactive one does not: a user stopped it, and it must stay stopped. mig-manager starts those
        as well, because it does not record what it stopped before it died.
        """
        if self.running:
            return StoppedUnit(self.name)
        if self.active == "failed" and self.enabled.startswith("enabled") and self.type != "oneshot":
            return StoppedUnit(self.name, failed=True)
        return None


async def read_unit(bus: Bus, name: str) -> UnitState:
    """Read the current state of a unit; ``load`` is not-found if it does not exist. Raises BusError."""
    try:
        (path,) = await bus.call("LoadUnit", "s", name)
        load = str(await bus.property(path, UNIT, "LoadState"))
        active = str(await bus.property(path, UNIT, "ActiveState"))
    except BusLostError:
        raise
    except BusError as error:
        if error.short in ("NoSuchUnit", "UnknownObject"):
            return UnitState(name)
        raise
    if load == "not-found":
        return UnitState(name, path, active=active)
    followers = [f for member in _STOPS_WITH_IT for f in await _maybe(bus, path, UNIT, member, ())]
    return UnitState(
        name,
        path,
        load,
        active,
        str(await _maybe(bus, path, UNIT, "UnitFileState", "")),
        str(await _maybe(bus, path, _SERVICE, "Type", "")),
        await _job(bus, path),
        tuple(f for f in dict.fromkeys(followers) if f.endswith(".service") and f != name),
    )


async def with_followers(bus: Bus, names: Iterable[str]) -> tuple[UnitState, ...]:
    """Return the relevant units among ``names``, each after the services that systemd would stop with it: those stop
    first and start last, and none of them is forgotten. Raises BusError.
    """
    found: dict[str, UnitState] = {}
    seen: set[str] = set()

    async def visit(name: str) -> None:
        if name in seen:
            return
        seen.add(name)
        state = await read_unit(bus, name)
        if state.running:
            for follower in state.followers:
                await visit(follower)
        if state.to_stop or state.to_start:
            found[name] = state

    for name in names:
        await visit(name)
    return tuple(found.values())


async def _job(bus: Bus, path: str) -> str:
    """Return the kind of the queued job of a unit, or ""."""
    number, job = await _maybe(bus, path, UNIT, "Job", (0, "/"))
    return str(await _maybe(bus, job, f"{SYSTEMD}.Job", "JobType", "")) if number else ""


async def _maybe(bus: Bus, path: str, interface: str, name: str, default: Any) -> Any:
    """Return a property that older systemds, other unit types or ended jobs do not have."""
    try:
        return await bus.property(path, interface, name)
    except BusLostError:
        raise
    except BusError:
        return default
