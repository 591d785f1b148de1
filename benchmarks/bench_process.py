"""What a running process costs, as the kernel accounts for it."""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

_PAGES = {"Rss": "rss", "Pss": "pss", "Private_Clean": "own", "Private_Dirty": "own"}


class Memory(msgspec.Struct, frozen=True):
    """MiB. ``rss``: resident; ``pss``: shared pages divided among those who share them; ``own``: what would be free
    if the process ended (the unique set).
    """

    rss: float
    pss: float
    own: float

    def __str__(self) -> str:
        return f"{self.rss:.1f} MiB resident ({self.pss:.1f} proportional, {self.own:.1f} its own)"


def memory(pid: int) -> Memory:
    """Sum smaps_rollup over a process and all that it has started."""
    found = dict.fromkeys(_PAGES.values(), 0)
    for each in family(pid):
        with suppress(FileNotFoundError, ProcessLookupError), open(f"/proc/{each}/smaps_rollup") as file:
            for line in file:
                word, _, rest = line.partition(":")
                if word in _PAGES:
                    found[_PAGES[word]] += int(rest.split()[0])
    return Memory(*(found[name] / 1024 for name in ("rss", "pss", "own")))


def family(pid: int) -> list[int]:
    """Return a process and all that it has started and that live."""
    found = [pid]
    for each in found:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            for task in os.listdir(f"/proc/{each}/task"):
                with open(f"/proc/{each}/task/{task}/children") as file:
                    found += map(int, file.read().split())
    return found


def cpu(pid: int) -> float:
    """CPU seconds of all threads that live now, to the nanosecond. A thread that ended takes its share with it: for
    spans in which threads end, use ``cpu_ticks``.
    """
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def cpu_ticks(pid: int) -> float:
    """CPU seconds since its start, to the hundredth."""
    with open(f"/proc/{pid}/stat") as file:
        words = file.read().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def threads(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/task"))
