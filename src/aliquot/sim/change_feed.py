"""A feed of changed nodes, so that a reader of a thousand nodes does not read each of them."""

from __future__ import annotations

import os
import threading
import time
from typing import NamedTuple


class ChangeBatch(NamedTuple):
    """The changes since an earlier answer."""

    since: str
    """The cursor for the next request."""
    nodes: tuple[str, ...]
    """The nodes that changed."""
    resync: bool = False
    """The changes are unknown: it was the first request, or the cursor is of another server."""
    membership: bool = False
    """Nodes were added or removed."""


class ChangeFeed:
    """A thread-safe feed. Each saved step of a node counts as a change."""

    def __init__(self) -> None:
        self._epoch = f"{os.getpid()}-{time.time_ns()}"
        self._number = 0
        self._joined = 0
        self._nodes: dict[str, int] = {}
        self._happened = threading.Condition()

    def touch(self, node: str) -> None:
        with self._happened:
            self._number += 1
            self._nodes[node] = self._number
            self._happened.notify_all()

    def touch_membership(self) -> None:
        """Record that nodes were added or removed."""
        with self._happened:
            self._number += 1
            self._joined = self._number
            self._happened.notify_all()

    def wait(self, since: str, seconds: float) -> ChangeBatch:
        """Return the changes since an earlier answer, after at most ``seconds``. The answer may be empty."""
        epoch, _, word = since.rpartition(":")
        known = epoch == self._epoch and word.isdigit()
        last = int(word) if known else -1
        with self._happened:
            if known:
                self._happened.wait_for(lambda: self._number > last, seconds)
            nodes = tuple(name for name, number in self._nodes.items() if number > last)
            return ChangeBatch(f"{self._epoch}:{self._number}", nodes if known else (), not known, self._joined > last)
