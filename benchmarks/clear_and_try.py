"""A replay of mig-parted's algorithm: clear the GPU, then try orders of the profiles; the driver places each.

The algorithm is that of NVIDIA/mig-parted at bd7160f (v0.15.0), pkg/mig/config:

- A GPU that already has the geometry is not touched.
- Flatten the request, sort it by GPU slices and compute slices descending, and try its distinct orders.
- Before each order, destroy everything that exists. Create without placements.
- The first order that creates everything wins.

It checks nothing before, and does not roll back. This module has the algorithm, and no code of mig-parted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

from laws.oracle import raw


class Replay(NamedTuple):
    """The result of a replay.

    ``created`` and ``destroyed`` are profile names in order, ``attempts`` the number of orders tried, ``refused`` the
    number of creates that the driver refused.
    """

    done: bool
    destroyed: list[str]
    created: list[str]
    attempts: int
    refused: int

    @property
    def calls(self) -> int:
        """Calls for whole instances that took effect: each also makes one for its compute instance."""
        return len(self.destroyed) + len(self.created)


def replay(family: str, now: raw.State, wanted: Sequence[str]) -> Replay:
    """Replay the algorithm on one GPU."""
    destroyed: list[str] = []
    created: list[str] = []
    attempts = refused = 0
    if Counter(name for name, _ in now) == Counter(wanted):
        return Replay(True, [], [], 0, 0)
    state = now
    for order in orders(sorted(wanted, key=_width)):
        attempts += 1
        destroyed += [name for name, _ in sorted(state)]
        state = frozenset()
        for name in order:
            start = default_start(family, state, name)
            if start is None:
                refused += 1
                break
            state |= {(name, start)}
            created.append(name)
        else:
            return Replay(True, destroyed, created, attempts, refused)
    return Replay(False, destroyed + [name for name, _ in sorted(state)], created, attempts, refused)


def _width(name: str) -> tuple[int, str]:
    return -int(name.partition("g")[0]), name


def orders(items: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the distinct orders, the given one first."""
    if not items:
        yield ()
        return
    for first in dict.fromkeys(items):
        rest = list(items)
        rest.remove(first)
        for tail in orders(rest):
            yield (first, *tail)


@cache
def default_start(family: str, state: raw.State, name: str) -> int | None:
    """Return the driver's own placement: the one that leaves the most room, then the lowest."""
    row = next(p for p in raw.table(family)["profiles"] if p["name"] == name)
    fits = [s for s in row["placements"]["starts"] if raw.legal(family, state | {(name, s)}) and (name, s) not in state]
    return max(fits, key=lambda s: (raw.room(family, state | {(name, s)}), -s), default=None)
