"""Work loop of the controller: one round for simultaneous events, a retry after failures, none while it may not
work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from aliquot.foundation.backoff import Backoff
from aliquot.kubernetes.client.work_loop import WorkLoop

BOUND_S = 30


class Noted(WorkLoop):
    """A work loop that wakes immediately, and records how long it would have waited."""

    def __init__(self) -> None:
        super().__init__(0.0, Backoff(1.0, 3.0))
        self.pauses: list[float] = []

    def wake_in(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.wake()


def pauses(answers: Sequence[bool | None]) -> list[float]:
    """Return the pauses after these results of the work. If a result needs no pause, an event wakes the loop."""

    async def main() -> list[float]:
        rounds, over, left = Noted(), asyncio.Event(), list(answers)

        async def work() -> bool | None:
            if not left:
                over.set()
                return None
            answer = left.pop(0)
            if answer is not False:
                rounds.wake()
            return answer

        rounds.wake()
        task = asyncio.create_task(rounds.run(work))
        async with asyncio.timeout(BOUND_S):
            await over.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return rounds.pauses

    return asyncio.run(main())


def test_what_failed_is_tried_again_after_pauses_that_double_to_a_bound() -> None:
    assert pauses([False] * 4) == [1.0, 2.0, 3.0, 3.0]


def test_a_success_makes_the_next_pause_short_again() -> None:
    assert pauses([False, False, True, False]) == [1.0, 2.0, 1.0]


def test_what_may_not_be_done_now_is_neither_a_failure_nor_a_success() -> None:
    assert pauses([False, None, False]) == [1.0, 2.0]


def test_what_comes_together_is_answered_once_and_what_comes_meanwhile_again() -> None:
    async def main() -> int:
        rounds, over, count = WorkLoop(0.05, Backoff(1.0, 1.0)), asyncio.Event(), 0

        async def work() -> bool:
            nonlocal count
            count += 1
            if count == 1:
                rounds.wake()
            else:
                over.set()
            return True

        task = asyncio.create_task(rounds.run(work))
        for _ in range(5):
            rounds.wake()
        async with asyncio.timeout(BOUND_S):
            await over.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return count

    assert asyncio.run(main()) == 2
