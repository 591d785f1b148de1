"""Exponential back-off: the time to wait after consecutive failures.

This module only calculates a number, because the loops here also watch other events. The tenacity library owns the
loop, and importing it takes 40 ms of CPU.
"""

from __future__ import annotations

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """The parameters of an exponential back-off."""

    first: float
    """Seconds to wait after one failure."""
    longest: float
    """The longest wait, in seconds, before jitter."""
    factor: float = 2.0
    """Each further failure multiplies the wait by this."""
    jitter: tuple[float, float] = (1.0, 1.0)
    """A random number of this range multiplies the wait, so that many processes do not retry at the same moment."""

    def pause(self, failures: int, least: float = 0.0) -> float:
        """Return the seconds to wait after this many consecutive failures; 0 if there are none. ``least`` is what a
        server asked for; the wait is at least that long, but not longer than ``longest``.
        """
        if failures < 1:
            return 0.0
        seconds = self.first
        for _ in range(min(failures - 1, 64)):
            if seconds >= self.longest:
                break
            seconds *= self.factor
        return min(max(seconds, least), self.longest) * random.uniform(*self.jitter)
