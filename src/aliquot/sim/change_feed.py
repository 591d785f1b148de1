"""Which nodes changed since one asked last: what lets one look at a thousand of them without reading a thousand."""

from __future__ import annotations

import os
import threading
import time
from typing import NamedTuple


class ChangeBatch(NamedTuple):
    """``since`` is for the next question. ``resync``: nobody knows what changed since the last one (it was the
    first, or of another server). ``membership``: nodes came or went.
    """

    since: str
    nodes: tuple[str, ...]
    resync: bool = False
    membership: bool = False


class ChangeFeed:
    """Thread-safe. Each saved step of a node counts as a change."""

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
        """Nodes came or went."""
        with self._happened:
            self._number += 1
            self._joined = self._number
            self._happened.notify_all()

    def wait(self, since: str, seconds: float) -> ChangeBatch:
        """What changed since an earlier answer, within some seconds at most. Nothing to tell is an answer, too."""
        epoch, _, word = since.rpartition(":")
        known = epoch == self._epoch and word.isdigit()
        last = int(word) if known else -1
        with self._happened:
            if known:
                self._happened.wait_for(lambda: self._number > last, seconds)
            nodes = tuple(name for name, number in self._nodes.items() if number > last)
            return ChangeBatch(f"{self._epoch}:{self._number}", nodes if known else (), not known, self._joined > last)
