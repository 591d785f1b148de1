"""Run a process through many cycles, and measure what it holds: memory, descriptors, threads.

Memory is the proportional set size of the process and all its children without pages of files, swapped pages included.
Pages of files, libraries above all, do not grow, and their share depends on which other processes map the same files.
Processes are started in fresh interpreters, so that no page is shared with the server that forks for other tests.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from support.selection import everything

CYCLES, ALL_CYCLES = 200, 1000
"""Cycles in the gate, and in ``make test-all``."""
GROWTH_KIB = 512
"""What a process may grow by in the last half of its cycles."""
SETTLE_S, MOMENT_S, ALIKE = 20.0, 0.5, 6
PROC = Path("/proc")


class Held(NamedTuple):
    """Descriptors and threads of a process and all its children."""

    descriptors: tuple[str, ...]
    threads: tuple[str, ...]


def cycles() -> int:
    """Return how many cycles this run does."""
    return ALL_CYCLES if everything() else CYCLES


def soak(pid: int, cycle: Callable[[int], None]) -> None:
    """Run ``cycle`` with the numbers from 0 on; fail where the process holds more at the end than in the middle."""
    count = cycles()
    middle, memory = count // 2, list[int]()
    before = Held((), ())
    for number in range(count):
        cycle(number)
        memory.append(anonymous_kib(pid))
        if number == middle:
            before = resting(pid)
    same(pid, before)
    found = growth_kib(memory)
    print(f"{memory[-1]} KiB after {count} cycles, {found} KiB more than in the middle, {_sizes(before)}")
    assert found < GROWTH_KIB, f"grew by {found} KiB in the last {count // 2} cycles: {memory[:: count // 20]}"


def growth_kib(memory: list[int]) -> int:
    """Return by how much the memory after each cycle grew in the last half: medians of the tenth of the cycles around
    the middle and of the last twentieth, so that garbage that waits for the collector does not count.
    """
    count = len(memory)
    before = median(memory[count * 9 // 20 : count * 11 // 20])
    return int(median(memory[count * 19 // 20 :]) - before)


def family(pid: int) -> list[int]:
    """Return a process and all that it has started."""
    found = [pid]
    for each in found:
        for task in _listed(PROC / str(each) / "task"):
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
                found += map(int, (task / "children").read_text().split())
    return found


def _listed(folder: Path) -> list[Path]:
    """Return the entries of a process's folder; none of one that has ended."""
    try:
        return list(folder.iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return []


def anonymous_kib(pid: int) -> int:
    """Return the anonymous proportional memory of a process and its children."""
    return sum(_anonymous_kib(each) for each in family(pid))


def _anonymous_kib(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # a child that has ended since
    found = {name: rest.split()[0] for name, _, rest in (line.partition(":") for line in lines[1:])}
    return sum(int(found[name]) for name in ("Pss_Anon", "Pss_Shmem", "SwapPss"))


def held(pid: int) -> Held:
    """Return what the process holds now, by name and without numbers that differ from one to the next."""
    descriptors, threads = list[str](), list[str]()
    for each in family(pid):
        for fd in _listed(PROC / str(each) / "fd"):
            with suppress(FileNotFoundError, ProcessLookupError):
                descriptors.append(os.readlink(fd).partition(":[")[0])
        for task in _listed(PROC / str(each) / "task"):
            with suppress(FileNotFoundError, ProcessLookupError):
                threads.append((task / "comm").read_text().strip())
    return Held(tuple(sorted(descriptors)), tuple(sorted(threads)))


def least(pid: int) -> Held:
    """Return the fewest descriptors and the fewest threads of a moment: those of a request are open only while it is
    answered.
    """
    seen = []
    end = time.monotonic() + MOMENT_S
    while time.monotonic() < end:
        seen.append(held(pid))
        time.sleep(MOMENT_S / 10)
    return Held(min((each.descriptors for each in seen), key=len), min((each.threads for each in seen), key=len))


def resting(pid: int) -> Held:
    """Return what the process holds once that has been the same for some moments: watches that broke are open again,
    and connections that nobody uses any more are closed.
    """
    seen = [least(pid)]
    end = time.monotonic() + SETTLE_S
    while len(set(map(_counts, seen[-ALIKE:]))) > 1 or len(seen) < ALIKE:
        assert time.monotonic() < end, f"never at rest: {[_counts(each) for each in seen]}"
        seen.append(least(pid))
    return seen[-1]


def same(pid: int, before: Held) -> None:
    """Wait until the process holds as many descriptors and threads as before. Raises AssertionError if it does not."""
    end = time.monotonic() + SETTLE_S
    while _counts(now := least(pid)) != _counts(before):
        assert time.monotonic() < end, f"more than in the middle: {_more(now, before)}; less: {_more(before, now)}"


def _counts(found: Held) -> tuple[int, int]:
    return len(found.descriptors), len(found.threads)


def _sizes(found: Held) -> str:
    descriptors, threads = _counts(found)
    return f"{descriptors} descriptors, {threads} threads"


def _more(found: Held, other: Held) -> dict[str, int]:
    """Return what one holds beyond the other, and how many of each."""
    return dict(
        Counter(found.descriptors) - Counter(other.descriptors) + (Counter(found.threads) - Counter(other.threads))
    )
