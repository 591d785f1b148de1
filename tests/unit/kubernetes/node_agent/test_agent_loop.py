"""Rounds of an agent: the pauses between them, events that end a pause, and the handling of a failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from aliquot.errors import AliquotError
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.node_agent import agent_loop
from aliquot.kubernetes.node_agent.agent_loop import AgentLoop


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record how long the loop paused each time, without waiting."""
    found: list[float] = []

    async def rest(event: asyncio.Event, seconds: float) -> None:
        found.append(seconds)

    monkeypatch.setattr(agent_loop, "wait_for_event", rest)
    monkeypatch.setattr(agent_loop.BACKOFF.__class__, "pause", lambda self, failures, least=0.0: max(failures, least))
    return found


def play(
    loop: AgentLoop,
    *rounds: float | Exception,
    on_defect: Callable[[Exception], AliquotError | None] = lambda error: None,
) -> None:
    """Run these rounds, and stop."""
    left = [*rounds]

    async def cycle() -> float:
        if not left:
            loop.stop()
            return 60.0
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    async def bounded() -> None:
        async with asyncio.timeout(5):
            await loop.run(cycle, on_defect)

    asyncio.run(bounded())


def test_it_rests_as_long_as_the_round_says_and_not_after_the_stop(rests: list[float]) -> None:
    loop = AgentLoop()
    assert loop.beat is None
    play(loop, 3.0, 0.0, 4.0)
    assert rests == [3.0, 4.0]
    assert loop.beat is not None


def test_it_counts_as_alive_until_the_end_of_its_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, ahead = AgentLoop(), list[float]()

    async def rest(event: asyncio.Event, seconds: float) -> None:
        ahead.append((loop.beat or 0.0) - time.monotonic())

    monkeypatch.setattr(agent_loop, "wait_for_event", rest)
    play(loop, 500.0)
    assert ahead == [pytest.approx(500.0, abs=5.0)]
    assert loop.beat == pytest.approx(time.monotonic(), abs=5.0)


def test_failures_are_tried_again_later_each_time_until_one_succeeds(rests: list[float]) -> None:
    loop = AgentLoop()
    unavailable = AliquotError("the server is away", next_step="wait")
    play(loop, unavailable, unavailable, ApiError("too many requests", retry_after_s=7.0), 0.5, unavailable)
    assert rests == [1, 2, 7.0, 0.5, 1]
    assert loop.error == "the server is away | next: wait"


@pytest.mark.parametrize("shown", [AliquotError("a defect"), None], ids=["shown", "recorded elsewhere"])
def test_a_defect_ends_nothing(shown: AliquotError | None, rests: list[float]) -> None:
    loop, met = AgentLoop(), list[Exception]()

    def on_defect(error: Exception) -> AliquotError | None:
        met.append(error)
        return shown

    play(loop, ZeroDivisionError(), 0.5, on_defect=on_defect)
    assert [type(error) for error in met] == [ZeroDivisionError]
    assert rests == [1, 0.5]
    assert loop.error == ("a defect" if shown else "")
    assert loop.code == 0


@pytest.mark.parametrize("stop", [True, False], ids=["stop", "wake"])
def test_a_rest_ends_when_something_happens(stop: bool) -> None:
    loop, woken, rounds = AgentLoop(), list[bool](), list[int]()
    loop.on_wake = lambda: woken.append(loop.stopping.is_set())

    async def cycle() -> float:
        rounds.append(1)
        if len(rounds) > 1:
            loop.stop()
        return 60.0

    async def run() -> None:
        running = asyncio.create_task(loop.run(cycle, lambda error: None))
        await asyncio.sleep(0.01)
        assert not running.done()
        (loop.stop if stop else loop.wake)()
        async with asyncio.timeout(5):
            await running

    asyncio.run(run())
    assert woken == ([True] if stop else [False, True])
    assert len(rounds) == (1 if stop else 2)


def test_a_part_that_fails_ends_the_agent_and_one_that_is_cancelled_does_not() -> None:
    async def run() -> None:
        for failure, code in ((asyncio.CancelledError(), 0), (ZeroDivisionError(), 1)):
            part = asyncio.get_running_loop().create_task(_raise(failure))
            part.add_done_callback(loop.part_ended)
            await asyncio.gather(part, return_exceptions=True)
            assert (loop.code, loop.stopping.is_set()) == (code, bool(code))

    loop = AgentLoop()
    asyncio.run(run())


async def _raise(error: BaseException) -> None:
    raise error
