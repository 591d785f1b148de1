"""Exponential back-off: how long to wait after each failure in a row.

Ours: a number and no loop, for loops here have other things to watch. tenacity owns the loop, and importing it takes
40 ms of CPU.
"""

from __future__ import annotations

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """``first`` is the pause after one failure and ``longest`` the most, in seconds; each further failure multiplies it
    by ``factor``. Then it is multiplied by a random number in ``jitter``, so that many processes do not return at the
    same moment.
    """

    first: float
    longest: float
    factor: float = 2.0
    jitter: tuple[float, float] = (1.0, 1.0)

    def pause(self, failures: int, least: float = 0.0) -> float:
        """Return the seconds to wait after so many failures in a row; 0 before the first. A server that asked for
        ``least`` seconds gets them, but no more than the longest pause.
        """
        if failures < 1:
            return 0.0
        seconds = self.first
        for _ in range(min(failures - 1, 64)):
            if seconds >= self.longest:
                break
            seconds *= self.factor
        return min(max(seconds, least), self.longest) * random.uniform(*self.jitter)
