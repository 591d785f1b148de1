"""Events of a node's GPUs as event sets see them: those after the creation of a set, each once per set."""

from __future__ import annotations

import threading
from collections import deque
from typing import NamedTuple

XID = 8
"""NVML's event type of an XID error (nvmlEventTypeXidCriticalError)."""
XID_FALLEN_OFF_BUS = 79
MAX_EVENTS = 1024


class SimEvent(NamedTuple):
    """An event. ``gi`` and ``ci`` are WHOLE if it is not attributed to an instance."""

    number: int
    gpu: int
    kind: int
    data: int
    gi: int
    ci: int


class EventLog:
    """A thread-safe event log. Waiting happens in the server's thread of that client."""

    def __init__(self) -> None:
        self._recent: deque[SimEvent] = deque(maxlen=MAX_EVENTS)
        self._last = 0
        self._happened = threading.Condition()

    @property
    def last(self) -> int:
        """The number of the latest event: a new set starts after it."""
        return self._last

    def emit(self, gpu: int, data: int, gi: int, ci: int, kind: int = XID) -> None:
        with self._happened:
            self._last += 1
            self._recent.append(SimEvent(self._last, gpu, kind, data, gi, ci))
            self._happened.notify_all()

    def wait(self, after: int, seconds: float, types: dict[int, int]) -> SimEvent | None:
        """Return the first event after a number of a requested kind: ``types`` maps GPU indexes to NVML's bits."""
        with self._happened:
            start = min(after, self._last)  # the server was restarted
            self._happened.wait_for(lambda: self._next(start, types) is not None, seconds)
            return self._next(start, types)

    def _next(self, after: int, types: dict[int, int]) -> SimEvent | None:
        return next((e for e in self._recent if e.number > after and e.kind & types.get(e.gpu, 0)), None)
