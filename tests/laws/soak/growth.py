"""Run a process through many cycles, and measure its resources: memory, descriptors, threads.

Memory is the proportional set size of the process and all its children, without pages of files and without free heap.
Pages of libraries do not grow, and their share depends on the other processes that map them. Before a measurement
objects are collected, and free space between allocated blocks of the heap is subtracted. The amount of it depends on
the order of events. For example, the label agent's grows by some 3 KiB a cycle in the first thousand cycles, while its
allocated memory stays the same.

To separate the two, Python uses the C library's allocator, which reports the allocated bytes. That allocator counts the
cache of freed memory of each thread (up to 230 KiB) as allocated, so these caches are disabled. Processes start in
fresh interpreters, so that they share no page with the fork server of other tests.
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
from support.processes import family
from support.selection import everything

CYCLES, ALL_CYCLES = 200, 1000
"""Cycles in ``make test``, and in ``make test-all``."""
GROWTH_KIB = 512
"""Maximum growth of a process in the last half of its cycles."""
SETTLE_S, MOMENT_S, ALIKE = 20.0, 0.5, 6
PROC, INSIDE = Path("/proc"), Path(__file__).with_name("inside")
SPARE = 3
"""Connections and threads that a pool may keep after several concurrent calls: asyncio's thread pool, the connections
of the simulator's library. A leak in each cycle, or in each restart of the node, is far larger.
"""
SAMPLES, RESTS = 20, 4


class Size(NamedTuple):
    """KiB of proportional memory, and the same without the free memory of the allocator."""

    proportional: int
    held: int


class Held(NamedTuple):
    """Descriptors and threads of a process and all its children."""

    descriptors: tuple[str, ...]
    threads: tuple[str, ...]


def cycles() -> int:
    """Return the number of cycles of this run: ``ALIQUOT_CYCLES`` if set (mutants set it)."""
    return int(os.environ.get("ALIQUOT_CYCLES") or (ALL_CYCLES if everything() else CYCLES))


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of a process under test. With it, the process is not forked from the fork server
    (``support/forkserver.py``). The process writes its own report to ``folder``.
    """
    path = os.pathsep.join((str(INSIDE), SOURCE, TESTS))
    allocator = {"PYTHONMALLOC": "malloc", "MALLOC_ARENA_MAX": "1", "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}
    return {"ALIQUOT_SOAK": str(folder), "PYTHONPATH": path, **allocator}


def soak(pid: int, folder: Path, cycle: Callable[[int], object], rest: Callable[[], object] = lambda: None) -> None:
    """Run ``cycle`` with the numbers from 0 on. Fail if the process holds more at the end than in the middle. ``rest``
    ends optional resources, such as idle connections, before descriptors and threads are counted.
    """
    count = cycles()
    sizes, before = list[Size](), Held((), ())
    for number in range(count):
        cycle(number)
        # cycles vary by numbers that divide both counts: the end is in the same state as the middle
        if number == count // 2 - 1:
            before = resting(pid, rest)
        if (number + 1) % (count // SAMPLES) == 0:
            sizes.append(size(pid, folder))
    no_more(pid, rest, before)
    grown = Size(*(end - middle for middle, end in zip(sizes[SAMPLES // 2 - 1], sizes[-1], strict=True)))
    print(f"{count} cycles, last half: {grown}, at the end {sizes[-1]}, {_sizes(before)}")
    assert grown.held < GROWTH_KIB, f"grew by {grown} in the last {count // 2} cycles: {sizes}"


def size(pid: int, folder: Path) -> Size:
    """Return the current size of the process, after it released free memory."""
    answer = folder / str(pid)
    answer.unlink(missing_ok=True)
    os.kill(pid, signal.SIGUSR2)
    end = time.monotonic() + SETTLE_S
    while not answer.exists():
        assert time.monotonic() < end, "the process does not report how much it has allocated"
        time.sleep(0.005)
    whole, allocated = pss_kib(pid), int(answer.read_text()) // 1024
    return Size(whole, whole - heap_kib(pid) + allocated)


def _listed(folder: Path) -> list[Path]:
    """Return the entries of a process's folder, or none if the process has ended."""
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
        return 0  # a child that has just ended
    found = {name: rest.split()[0] for name, _, rest in (line.partition(":") for line in lines[1:])}
    return sum(int(found[name]) for name in ("Pss_Anon", "Pss_Shmem", "SwapPss"))


def heap_kib(pid: int) -> int:
    """Return the memory of a process's heap, which is the only arena of its allocator (MALLOC_ARENA_MAX=1)."""
    text = (PROC / str(pid) / "smaps").read_text()
    _, _, heap = text.partition("[heap]\n")
    found = dict(re.findall(r"^(\w+): +(\d+) kB$", heap.partition("VmFlags")[0], re.M))
    return int(found["Pss"]) + int(found["SwapPss"])


def held(pid: int) -> Held:
    """Return what the process holds now, by name and without the numbers that vary."""
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
    """Return the lowest numbers of descriptors and threads within a short time: those of a request are open only while
    the server answers it.
    """
    seen = []
    end = time.monotonic() + MOMENT_S
    while time.monotonic() < end:
        seen.append(held(pid))
        time.sleep(MOMENT_S / 10)
    return Held(min((each.descriptors for each in seen), key=len), min((each.threads for each in seen), key=len))


def resting(pid: int, rest: Callable[[], object]) -> Held:
    """Return what the process holds once that has been stable for some moments after ``rest``: broken watches are open
    again, and unused connections are closed.
    """
    rest()
    seen = [least(pid)]
    end = time.monotonic() + SETTLE_S
    while len(set(map(_counts, seen[-ALIKE:]))) > 1 or len(seen) < ALIKE:
        assert time.monotonic() < end, f"never at rest: {[_counts(each) for each in seen]}"
        seen.append(least(pid))
    return seen[-1]


def no_more(pid: int, rest: Callable[[], object], before: Held) -> None:
    """Wait until the process holds at most ``SPARE`` more descriptors and threads than before. A connection may be idle
    at one moment and closed at the next one. Raises AssertionError if the process continues to hold more.
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
    """Return what the first holds beyond the second, with counts."""
    return dict(
        Counter(found.descriptors) - Counter(other.descriptors) + (Counter(found.threads) - Counter(other.threads))
    )
