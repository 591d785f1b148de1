"""Reports of a driver call that hangs: their time, and their number if the API server refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from unittest import mock

from aliquot.errors import DriverHangsError
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.node_agent.hang_reporter import BACKOFF, HangReporter

HANG = DriverHangsError("the driver has not returned from reading")


class Bench:
    """A reporter with its own clock, polled once a second. ``refuses`` is the API server's answer."""

    def __init__(self) -> None:
        self.now = 0.0
        self.hang: DriverHangsError | None = None
        self.refuses: ApiError | None = None
        self.reports: list[tuple[float, DriverHangsError | None]] = []
        self.reporter = HangReporter(self.report, lambda: self.now)

    async def report(self, error: DriverHangsError | None) -> None:
        self.reports.append((self.now, error))
        if self.refuses is not None:
            raise self.refuses

    async def passes(self, seconds: int) -> list[DriverHangsError | None]:
        """Return the reports of these seconds."""
        before = len(self.reports)
        for _ in range(seconds):
            self.now += 1.0
            await self.reporter.poll()
        return [error for _, error in self.reports[before:]]


def played(play: Callable[[Bench], Awaitable[None]]) -> Bench:
    bench = Bench()

    async def run() -> None:
        await play(bench)

    with mock.patch("aliquot.foundation.driver_calls.current_hang", side_effect=lambda: bench.hang):
        asyncio.run(run())
    return bench


def test_a_hang_is_reported_while_it_lasts_and_its_end_once() -> None:
    async def play(bench: Bench) -> None:
        assert await bench.passes(3) == []
        bench.hang = HANG
        assert await bench.passes(2) == [HANG, HANG]
        bench.hang = None
        assert await bench.passes(3) == [None]

    played(play)


def test_a_report_that_is_refused_is_repeated_less_and_less_often() -> None:
    async def play(bench: Bench) -> None:
        bench.hang, bench.refuses = HANG, ApiError("it is away")
        await bench.passes(300)

    times = [at for at, _ in played(play).reports]
    assert len(times) < 20, times
    gaps = [after - before for before, after in pairwise(times)]
    assert max(gaps) > 15
    assert max(gaps) <= BACKOFF.longest * BACKOFF.jitter[1] + 1


def test_the_server_says_when_to_come_back_and_a_report_that_arrives_ends_the_wait() -> None:
    async def play(bench: Bench) -> None:
        bench.hang, bench.refuses = HANG, ApiError("too many requests", retry_after_s=10)
        assert len(await bench.passes(8)) == 1
        bench.refuses = None
        assert await bench.passes(6)
        assert len(await bench.passes(5)) == 5

    played(play)


def test_an_end_that_could_not_be_reported_is_reported_later() -> None:
    async def play(bench: Bench) -> None:
        bench.hang = HANG
        await bench.passes(1)
        bench.hang, bench.refuses = None, ApiError("it is away")
        assert await bench.passes(1) == [None]
        bench.refuses = None
        assert await bench.passes(5) == [None]

    played(play)
