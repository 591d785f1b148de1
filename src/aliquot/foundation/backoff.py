"""Exponential back-off: how long to wait after each failure in a row."""

from __future__ import annotations

import random

import msgspec


class Backoff(msgspec.Struct, frozen=True):
    """``first`` is the pause after one failure and ``longest`` the most, in seconds; each further failure multiplies it
    by ``factor``. With ``jitter`` 0.2 a pause is up to 20 % shorter or longer, so that many processes do not return at
    the same moment.
    """

    first: float
    longest: float
    factor: float = 2.0
    jitter: float = 0.0

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row; 0 before the first."""
        if failures < 1:
            return 0.0
        seconds = self.first
        for _ in range(min(failures - 1, 64)):
            if seconds >= self.longest:
                break
            seconds *= self.factor
        seconds = min(seconds, self.longest)
        return seconds * random.uniform(1.0 - self.jitter, 1.0 + self.jitter) if self.jitter else seconds
