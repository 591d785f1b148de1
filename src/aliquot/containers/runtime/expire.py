"""Which reservations still hold. Pure: they, what the runtimes say, and the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from aliquot.containers.runtime.models import Container, Reservation

Answer = Callable[[Reservation], Sequence[Container] | None]
"""The containers of a reservation's runtime, None where it does not answer."""


class Ended(msgspec.Struct, frozen=True):
    """A reservation that holds no more, and why."""

    reservation: Reservation
    why: str


class Settled(msgspec.Struct, frozen=True):
    """Reservations that hold, each with its container where that was seen, and those that ended."""

    kept: tuple[Reservation, ...]
    ended: tuple[Ended, ...]


def settle(
    reservations: Iterable[Reservation],
    answer: Answer,
    present: frozenset[str],
    now: float,
    departed: Callable[[Reservation], bool] = lambda _: False,
) -> Settled:
    """``present`` are the UUIDs of the node's devices, ``now`` the time in seconds since 1970; ``departed`` whether
    the runtime remembers that a container which we never saw was removed.

    A reservation ends when its container, once seen, is gone; or when no container came in time. One of a runtime that
    does not answer holds: nobody can say that its container is gone. One without a time limit ends only by hand.
    """
    kept, ended = [], []
    for each in reservations:
        now_held, why = _one(each, answer(each), present, now, departed)
        if why:
            ended.append(Ended(each, why))
        else:
            kept.append(now_held)
    return Settled(tuple(kept), tuple(ended))


def _one(
    each: Reservation,
    containers: Sequence[Container] | None,
    present: frozenset[str],
    now: float,
    departed: Callable[[Reservation], bool],
) -> tuple[Reservation, str]:
    if containers is None:
        return each, ""
    mine = [c for c in containers if c.reservation == each.id or (each.container and c.id == each.container)]
    if mine:
        chosen = next((c for c in mine if c.live), mine[0])
        return msgspec.structs.replace(each, container=chosen.id, name=chosen.name or each.name), ""
    if each.until is None:
        return each, ""
    if each.container or departed(each):
        name = each.name or each.container[:12]
        return each, f"container {name} is gone" if name else "its container is gone"
    if not present & set(each.devices):
        return each, "the device is gone, and no container came for it"
    if now >= each.until or now < each.made - 60:
        return each, f"no container came for it in {each.until - each.made:g} s"
    return each, ""
