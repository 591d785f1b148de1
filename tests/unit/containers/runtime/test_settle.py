"""Lifetime of a reservation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from aliquot.containers.runtime.expire import ExpiryResult, expire_reservations
from aliquot.containers.runtime.models import Container, ContainerReservation
from unit.containers.runtime.nodes import container, reservation, uuid

HERE = frozenset({uuid(0, 1), uuid(0, 2)})
MINE = container(reservation="r1", name="web")
OTHER = container("d" * 64, reservation="r2", name="other")


def settled(
    each: ContainerReservation, containers: Sequence[Container] | None, now: float = 1010, *, gone: bool = False
) -> ExpiryResult:
    return expire_reservations([each], lambda _: containers, HERE, now, lambda _: gone)


def test_it_waits_for_its_container() -> None:
    assert settled(reservation(), [OTHER]).active == (reservation(),)


def test_the_container_is_written_down() -> None:
    (kept,) = settled(reservation(), [OTHER, MINE], now=99999).active
    assert (kept.container, kept.name) == (MINE.id, "web")


def test_a_running_container_goes_before_one_that_ended() -> None:
    ended = container("e" * 64, "exited", reservation="r1")
    (kept,) = settled(reservation(), [ended, MINE]).active
    assert kept.container == MINE.id


def test_one_that_ended_keeps_it_until_it_is_removed() -> None:
    ended = container(state="exited", reservation="r1")
    (kept,) = settled(reservation(), [ended], now=99999).active
    (over,) = settled(kept, []).ended
    assert over.why == "container web is gone"


@pytest.mark.parametrize(
    ("each", "now", "gone", "why"),
    [
        (reservation(), 1600, False, "no container came for it in 600 s"),
        (reservation(), 1599, False, ""),
        (reservation(), 1010, True, "its container is gone"),
        (reservation(devices=(uuid(3, 3),)), 1010, False, "the device is gone, and no container came for it"),
        (reservation(until=None), 99999, True, ""),  # kept until it is released explicitly
        (reservation(), 0, False, "no container came for it in 600 s"),  # the clock was set back
    ],
)
def test_ends(each: ContainerReservation, now: float, gone: bool, why: str) -> None:
    found = settled(each, [OTHER], now, gone=gone)
    assert [e.why for e in found.ended] == ([why] if why else [])
    assert len(found.active) == (0 if why else 1)


def test_a_container_is_not_gone_while_its_runtime_is_silent() -> None:
    seen = reservation(container=MINE.id)
    assert settled(seen, None, now=99999, gone=True).active == (seen,)
