"""What lies beside a node's GPUs and is shown too: its lock, and the record of what was asked of it last."""

from __future__ import annotations

import os
from collections.abc import Iterable

from aliquot.dashboard.local.node_access import Spot
from aliquot.hardware.state.boot_record_file import FILE

Sign = tuple[int, int, bool]
_LOCKS = "/proc/locks"


class Signs:
    """Which nodes are to be looked at again although nothing happened to their GPUs. For one thread at a time."""

    def __init__(self) -> None:
        self._noted: dict[str, Sign] = {}

    def note(self, spot: Spot, held: frozenset[int] | None = None) -> None:
        """A look is taken now: what is there before it is known."""
        self._noted[spot.name] = _sign(spot, inodes() if held is None else held)

    def forget(self, name: str) -> None:
        self._noted.pop(name, None)

    def moved(self, spots: Iterable[Spot]) -> list[str]:
        """The names of nodes whose signs are not those that were noted."""
        held = inodes()
        return [spot.name for spot in spots if self._noted.get(spot.name) != _sign(spot, held)]


def inodes() -> frozenset[int]:
    """Of the files that anybody holds with flock, as the kernel tells it. None where it does not."""
    try:
        with open(_LOCKS) as file:
            lines = [line.split() for line in file]
    except OSError:
        return frozenset()
    return frozenset(int(w[5].rpartition(":")[2]) for w in lines if len(w) > 5 and w[1] == "FLOCK")


def _sign(spot: Spot, held: frozenset[int]) -> Sign:
    try:
        facts = os.stat(os.path.join(spot.directory, FILE))
        wishes = facts.st_ino, facts.st_mtime_ns
    except OSError:
        wishes = 0, 0
    try:
        locked = os.stat(spot.lock).st_ino in held
    except OSError:
        locked = False
    return (*wishes, locked)
