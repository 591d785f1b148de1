"""Switches for tests: make the server slow or unavailable, and count its requests."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import msgspec

Mode = Literal["up", "hang", "error"]


class Request(msgspec.Struct, frozen=True):
    """A kind of request to count: verb (``list``, ``watch``, ...), resource (``pods/eviction``) and user name."""

    verb: str
    resource: str
    user: str


class Asked(msgspec.Struct, frozen=True):
    """A request as it arrived. ``when`` is ``before`` it is applied, or ``after`` that and before the client is
    answered.
    """

    when: Literal["before", "after"]
    method: str
    path: str
    agent: str


class Control:
    """Switches that every request reads. ``gate`` is called with every request, in the thread that serves it. It may
    wait, end the client, or raise ConnectionError, which ends the connection instead of going on.
    """

    def __init__(self) -> None:
        self.mode: Mode = "up"
        self.latency_s = 0.0
        self.gate: Callable[[Asked], None] = lambda asked: None
        self.requests: Counter[Request] = Counter()
        self.generation = 0
        """Connections of an older generation end."""
        self._streams: Counter[int] = Counter()
        self._lock = threading.Lock()

    def note(self, verb: str, resource: str, user: str) -> None:
        with self._lock:
            self.requests[Request(verb, resource, user)] += 1

    def count(self, verb: str | None = None, resource: str | None = None, user: str | None = None) -> int:
        """Return how many requests match. None matches everything."""
        with self._lock:
            return sum(
                number
                for request, number in self.requests.items()
                if verb in (None, request.verb)
                and resource in (None, request.resource)
                and user in (None, request.user)
            )

    def forget(self) -> None:
        """Reset the counters."""
        with self._lock:
            self.requests.clear()

    @property
    def streams(self) -> int:
        """The number of open watches that were not dropped."""
        with self._lock:
            return self._streams[self.generation]

    @contextmanager
    def streaming(self, generation: int) -> Iterator[None]:
        """Count a watch while it is open."""
        with self._lock:
            self._streams[generation] += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams[generation] -= 1

    def drop(self) -> None:
        """End all watches at once; clients may come back."""
        self.generation += 1

    @contextmanager
    def during(self, mode: Mode) -> Iterator[None]:
        """Fail requests inside the block and drop watches. ``hang`` takes requests and never answers; ``error`` answers
        500.
        """
        before, self.mode = self.mode, mode
        self.drop()
        try:
            yield
        finally:
            self.mode = before

    def wait_while_hanging(self) -> None:
        while self.mode == "hang":
            time.sleep(0.02)
