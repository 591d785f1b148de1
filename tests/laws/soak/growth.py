"""Run a process through many cycles, and measure what it holds: memory, descriptors, threads.

Memory is the proportional set size of the process and all its children without pages of files (those of libraries do
not grow, and their share depends on which other processes map them), and without what the process has free: objects
are collected first, and what lies free in its heap between allocated memory is subtracted. How much that is depends on
the order of events: the label agent's grows by some 3 KiB a cycle in the first thousand, while what it has allocated
stays the same. To tell one from the other, Python uses the C library's allocator, which says how much it gave out. That
counts what a thread keeps of freed memory (up to 230 KiB each) as given out, so threads keep none. Processes are
started in fresh interpreters, so that no page is shared with the server that forks for other tests.
"""

from __future__ import annotations

import operator
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from support.forkserver import SOURCE, TESTS
from support.selection import everything

CYCLES, ALL_CYCLES = 200, 1000
"""Cycles in the gate, and in ``make test-all``."""
GROWTH_KIB = 512
"""What a process may grow by in the last half of its cycles."""
SETTLE_S, MOMENT_S, ALIKE = 20.0, 0.5, 6
PROC, INSIDE = Path("/proc"), Path(__file__).with_name("inside")
SPARE = 3
"""Connections and threads that a pool may keep since several calls first came at the same moment: asyncio's pool of
threads, the connections of the simulator's library. What is lost in each cycle, or in each restart of the node, is far
more.
"""
SAMPLES, RESTS = 20, 4


class Size(NamedTuple):
    """KiB: proportional memory, and the same without what the allocator has free."""

    proportional: int
    held: int


class Held(NamedTuple):
    """Descriptors and threads of a process and all its children."""

    descriptors: tuple[str, ...]
    threads: tuple[str, ...]


def cycles() -> int:
    """Return how many cycles this run does: ``ALIQUOT_CYCLES`` where that is set, as it is for mutants."""
    return int(os.environ.get("ALIQUOT_CYCLES") or (ALL_CYCLES if everything() else CYCLES))


def environment(folder: Path) -> dict[str, str]:
    """Return what a process under test has in its environment. Where it does, it is not forked from the tests' server
    (``support/forkserver.py``). ``folder`` is for what it writes about itself.
    """
    path = os.pathsep.join((str(INSIDE), SOURCE, TESTS))
    allocator = {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    return {"ALIQUOT_SOAK": str(folder), "PYTHONPATH": path, **allocator}


def soak(pid: int, folder: Path, cycle: Callable[[int], object], rest: Callable[[], object] = lambda: None) -> None:
    """Run ``cycle`` with the numbers from 0 on; fail where the process holds more at the end than in the middle.
    ``rest`` ends what may be there or not, such as idle connections, before descriptors and threads are counted.
    """
    count = cycles()
    sizes, before = list[Size](), Held((), ())
    for number in range(count):
        cycle(number)
        if number == count // 2 - 1:  # cycles take turns by numbers that divide both: the end is in the same state
            before = resting(pid, rest)
        if (number + 1) % (count // SAMPLES) == 0:
            sizes.append(size(pid, folder))
    no_more(pid, rest, before)
    grown = Size(*(end - middle for middle, end in zip(sizes[SAMPLES // 2 - 1], sizes[-1], strict=True)))
    print(f"{count} cycles, last half: {grown}, at the end {sizes[-1]}, {_sizes(before)}")
    assert grown.held < GROWTH_KIB, f"grew by {grown} in the last {count // 2} cycles: {sizes}"


def size(pid: int, folder: Path) -> Size:
    """Return what the process has now, after it gave back what is free."""
    answer = folder / str(pid)
    answer.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    end = time.monotonic() + SETTLE_S
    while not answer.exists():
        assert time.monotonic() < end, "the process does not say how much it has allocated"
        time.sleep(0.005)
    whole, allocated = pss_kib(pid), int(answer.read_text()) // 1024
    return Size(whole, whole - heap_kib(pid) + allocated)


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


def pss_kib(pid: int) -> int:
    """Return the proportional memory of a process and its children without pages of files."""
    return sum(_pss_kib(each) for each in family(pid))


def _pss_kib(pid: int) -> int:
    try:
        lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # a child that has ended since
    found = {name: rest.split()[0] for name, _, rest in (line.partition(":") for line in lines[1:])}
    return sum(int(found[name]) for name in ("Pss_Anon", "Pss_Shmem", "SwapPss"))


def heap_kib(pid: int) -> int:
    """Return the memory of a process's heap, which is all that its allocator has (MALLOC_ARENA_MAX=1)."""
    text = (PROC / str(pid) / "smaps").read_text()
    _, _, heap = text.partition("[heap]\n")
    found = dict(re.findall(r"^(\w+): +(\d+) kB$", heap.partition("VmFlags")[0], re.M))
    return int(found["Pss"]) + int(found["SwapPss"])


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


def resting(pid: int, rest: Callable[[], object]) -> Held:
    """Return what the process holds once that has been the same for some moments after ``rest``: watches that broke are
    open again, and connections that nobody uses any more are closed.
    """
    rest()
    seen = [least(pid)]
    end = time.monotonic() + SETTLE_S
    while len(set(map(_counts, seen[-ALIKE:]))) > 1 or len(seen) < ALIKE:
        assert time.monotonic() < end, f"never at rest: {[_counts(each) for each in seen]}"
        seen.append(least(pid))
    return seen[-1]


def no_more(pid: int, rest: Callable[[], object], before: Held) -> None:
    """Wait until the process holds no more descriptors and threads than before, ``SPARE`` of each aside. A connection
    may be idle at one moment of rest and closed at the next one. Raises AssertionError if it goes on holding more.
    """
    descriptors, threads = (count + SPARE for count in _counts(before))
    for _ in range(RESTS):
        now = resting(pid, rest)
        if not any(map(operator.gt, _counts(now), (descriptors, threads))):
            return
    raise AssertionError(f"more than in the middle: {_more(now, before)}")


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
