"""Expiry of reservations. Pure: reservations, containers of the runtimes, and the time in, active and ended
ones out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from aliquot.containers.runtime.models import Container, ContainerReservation

ContainerLookup = Callable[[ContainerReservation], Sequence[Container] | None]
"""Returns the containers of a reservation's runtime, or None if the runtime does not answer."""


class EndedReservation(msgspec.Struct, frozen=True):
    """A reservation that no longer holds, and why."""

    reservation: ContainerReservation
    why: str


class ExpiryResult(msgspec.Struct, frozen=True):
    """Active reservations, each with its container if that was seen, and those that ended."""

    active: tuple[ContainerReservation, ...]
    ended: tuple[EndedReservation, ...]


def expire_reservations(
    reservations: Iterable[ContainerReservation],
    lookup: ContainerLookup,
    present: frozenset[str],
    now: float,
    departed: Callable[[ContainerReservation], bool] = lambda _: False,
) -> ExpiryResult:
    """Split reservations into active and ended ones. ``present`` are the UUIDs of the node's devices, ``now`` is in
    seconds since 1970. ``departed`` reports whether the runtime remembers that a container which we never saw was
    removed.

    A reservation ends when its container was seen and is gone, or when no container came in time. If the runtime does
    not answer, the reservation stays active, because its container may still exist. One without a time limit ends only
    when a user releases it.
    """
    active, ended = [], []
    for reservation in reservations:
        renewed, why = _review(reservation, lookup(reservation), present, now, departed)
        if why:
            ended.append(EndedReservation(reservation, why))
        else:
            active.append(renewed)
    return ExpiryResult(tuple(active), tuple(ended))


def _review(
    reservation: ContainerReservation,
    containers: Sequence[Container] | None,
    present: frozenset[str],
    now: float,
    departed: Callable[[ContainerReservation], bool],
) -> tuple[ContainerReservation, str]:
    if containers is None:
        return reservation, ""
    mine = [
        c
        for c in containers
        if c.reservation == reservation.id or (reservation.container and c.id == reservation.container)
    ]
    if mine:
        chosen = next((c for c in mine if c.live), mine[0])
        return msgspec.structs.replace(reservation, container=chosen.id, name=chosen.name or reservation.name), ""
    if reservation.until is None:
        return reservation, ""
    if reservation.container or departed(reservation):
        name = reservation.name or reservation.container[:12]
        return reservation, f"container {name} is gone" if name else "its container is gone"
    if not present & set(reservation.devices):
        return reservation, "the device is gone, and no container came for it"
    if now >= reservation.until or now < reservation.made - 60:
        return reservation, f"no container came for it in {reservation.until - reservation.made:g} s"
    return reservation, ""
