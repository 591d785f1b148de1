"""Abandoned requests: nothing stays open, however often the caller is cancelled."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from aliquot.kubernetes.client.cancellation import abandon


class Wire:
    """The resources that a request in progress holds open."""

    def __init__(self, slow_close_s: float = 0.0) -> None:
        self.open = True
        self.is_closed = False
        self.closed_by_itself = False
        self._slow_close_s = slow_close_s

    async def send(self, lasts_s: float) -> httpx2.Response:
        try:
            await asyncio.sleep(lasts_s)
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # a library needs turns of the loop to release them
            self.open = False
            raise
        return self  # type: ignore[return-value]

    async def aclose(self) -> None:
        await asyncio.sleep(self._slow_close_s)
        self.open = False
        self.closed_by_itself = True


def given_up(wire: Wire, lasts_s: float, patience_s: float, cancels: int) -> None:
    async def main() -> None:
        sending = asyncio.ensure_future(wire.send(lasts_s))
        giving_up = asyncio.create_task(abandon(sending, patience_s))
        for _ in range(cancels):
            await asyncio.sleep(0.005)
            giving_up.cancel()
        if cancels:
            with pytest.raises(asyncio.CancelledError):
                await giving_up
        else:
            await giving_up
        assert sending.done()

    asyncio.run(main())


def test_an_answer_that_comes_in_time_is_closed() -> None:
    wire = Wire()
    given_up(wire, lasts_s=0.01, patience_s=5, cancels=0)
    assert wire.closed_by_itself


def test_one_that_does_not_is_given_up() -> None:
    wire = Wire()
    given_up(wire, lasts_s=60, patience_s=0.02, cancels=0)
    assert (wire.open, wire.closed_by_itself) == (False, False)


@pytest.mark.parametrize("cancels", [1, 2, 3])
def test_it_is_waited_for_though_the_caller_is_cancelled_again(cancels: int) -> None:
    # A leader that steps down ends its watch and is then ended itself: two cancellations within the time of a
    # handshake.
    wire = Wire()
    given_up(wire, lasts_s=60, patience_s=5, cancels=cancels)
    assert not wire.open


@pytest.mark.parametrize("cancels", [1, 2, 3])
def test_so_is_its_closing(cancels: int) -> None:
    wire = Wire(slow_close_s=0.05)
    given_up(wire, lasts_s=0, patience_s=5, cancels=cancels)
    assert wire.closed_by_itself
