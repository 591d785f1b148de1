"""The memory and CPU time of a running process, as the kernel accounts for it."""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from support.processes import family

_PAGES = {"Rss": "rss", "Pss": "pss", "Private_Clean": "own", "Private_Dirty": "own"}


class Memory(msgspec.Struct, frozen=True):
    """Memory in MiB.

    ``rss`` is resident. In ``pss``, shared pages are divided among the processes that share them. ``own`` would be
    free if the process ended (the unique set).
    """

    rss: float
    pss: float
    own: float

    def __str__(self) -> str:
        return f"{self.rss:.1f} MiB resident ({self.pss:.1f} proportional, {self.own:.1f} its own)"


def memory(pid: int) -> Memory:
    """Sum smaps_rollup over a process and all its descendants."""
    found = dict.fromkeys(_PAGES.values(), 0)
    for each in family(pid):
        with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{each}/smaps_rollup") as file:
            for line in file:
                word, _, rest = line.partition(":")
                if word in _PAGES:
                    found[_PAGES[word]] += int(rest.split()[0])
    return Memory(*(found[name] / 1024 for name in ("rss", "pss", "own")))


def cpu(pid: int) -> float:
    """Return the CPU seconds of all living threads, to the nanosecond.

    A thread that ends takes its share with it. For spans in which threads end, use ``cpu_ticks``.
    """
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def cpu_ticks(pid: int) -> float:
    """Return the CPU seconds since a process's start, to the hundredth."""
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))
