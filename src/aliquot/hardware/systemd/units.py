"""What a unit is doing, and so whether it must stop for a change and start again afterwards."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from aliquot.hardware.systemd.errors import BusError, BusLostError
from aliquot.hardware.systemd.names import SYSTEMD, UNIT

if TYPE_CHECKING:  # who only keeps what was stopped needs no D-Bus
    from aliquot.hardware.systemd.bus import Bus

RUNNING = ("active", "activating", "reloading", "refreshing")
STARTING_JOBS = ("start", "restart", "try-restart", "reload-or-start")
_SERVICE = f"{SYSTEMD}.Service"
_STOPS_WITH_IT = ("RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf", "PropagatesStopTo")
"""Units that systemd stops when it stops this one."""


class StoppedUnit(msgspec.Struct, frozen=True):
    """A unit to start again. ``failed``: it had failed before, so that a start which fails again is no news."""

    name: str
    failed: bool = False


class StoppedServices(msgspec.Struct, frozen=True):
    """The durable record of what we stop, in the order in which it stops."""

    units: tuple[StoppedUnit, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(unit.name for unit in self.units)

    def merged_with(self, later: StoppedServices) -> StoppedServices:
        """Both records. What the earlier one holds keeps its place: it was running before anybody stopped it."""
        known = set(self.names)
        return StoppedServices((*self.units, *(unit for unit in later.units if unit.name not in known)))


class UnitState(msgspec.Struct, frozen=True):
    """``load``: loaded, not-found, masked ...; ``active``: active, inactive, failed ...; ``enabled`` is the unit
    file's state; ``job`` the kind of a job that is queued for it; ``followers`` stop with it.
    """

    name: str
    path: str = ""
    load: str = "not-found"
    active: str = "inactive"
    enabled: str = ""
    type: str = ""
    job: str = ""
    followers: tuple[str, ...] = ()

    @property
    def running(self) -> bool:
        """It runs or is about to. A unit that is going down in order to start again counts."""
        return self.active in RUNNING or self.job in STARTING_JOBS

    @property
    def to_stop(self) -> bool:
        """It must be stopped, or be awaited on its way down."""
        return self.running or self.active == "deactivating"

    @property
    def to_start(self) -> StoppedUnit | None:
        """What must be started again. A service that runs, however it was started; one that failed though it is
        enabled. Not one that is inactive: somebody stopped it, and it must stay so. mig-manager starts those as well,
        because it has no memory of what it stopped before it died. We have.
        """
        if self.running:
            return StoppedUnit(self.name)
        if self.active == "failed" and self.enabled.startswith("enabled") and self.type != "oneshot":
            return StoppedUnit(self.name, failed=True)
        return None


async def read_unit(bus: Bus, name: str) -> UnitState:
    """One unit as it is now; one that does not exist has ``load`` not-found. Raises BusError."""
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
    """What of these concerns us, each after the services that systemd would stop with it: those stop first and start
    last, and none of them is forgotten. Raises BusError.
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
    """The kind of the job that is queued for a unit, "" for none."""
    number, job = await _maybe(bus, path, UNIT, "Job", (0, "/"))
    return str(await _maybe(bus, job, f"{SYSTEMD}.Job", "JobType", "")) if number else ""


async def _maybe(bus: Bus, path: str, interface: str, name: str, default: Any) -> Any:
    """A property that older systemds, other unit types or ended jobs do not have."""
    try:
        return await bus.property(path, interface, name)
    except BusLostError:
        raise
    except BusError:
        return default
