"""Medians, spreads and verdicts, which every experiment reports its results with."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """A line of the result table.

    ``kind`` is measured (a clock on this host), simulated (a clock, on a simulated node), replayed (a count, with call
    times that others measured) or quoted (another project's figure, from another host). ``verdict`` is reached,
    missed, skipped, or - without a goal.
    """

    group: str
    name: str
    value: str
    kind: str
    goal: str = ""
    verdict: str = "-"
    spread: str = ""


Report = Callable[[Figure], None]


def at_most(value: float, goal: float) -> str:
    return "reached" if value <= goal else "missed"


def at_least(value: float, goal: float) -> str:
    return "reached" if value >= goal else "missed"


def spread(values: Sequence[float], form: str, unit: str = "") -> str:
    """Return the minimum and maximum of the repeats, and their number."""
    return f"{min(values):{form}}-{max(values):{form}}{unit}, n={len(values)}"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, list[float]]:
    """Return the median of the ratios of alternating repeats, and the ratios. Other load hits both sides."""
    pairs = [a / b for a, b in zip(ours, theirs, strict=True)]
    return median(pairs), pairs


def clock(act: Callable[[], object]) -> float:
    """Return the seconds that one call takes."""
    start = perf_counter()
    act()
    return perf_counter() - start


def alternate(repeats: int, sides: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Run every side once per repeat, in turn; the order is reversed every second time."""
    out: dict[str, list[float]] = {name: [] for name in sides}
    for n in range(repeats):
        for name in list(sides) if n % 2 == 0 else list(sides)[::-1]:
            out[name].append(sides[name]())
    return out


def digest(*parts: bytes) -> str:
    """Return the shortened SHA-256 of an input."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(part)
    return whole.hexdigest()[:16]


def digest_files(paths: Sequence[str]) -> str:
    bodies = []
    for path in sorted(paths):
        with open(path, "rb") as file:
            bodies.append(file.read())
    return digest(*bodies)


def machine() -> str:
    """Return the class of this host, never its name."""
    ghz = f" at {hertz / 1e6:.1f} GHz" if (hertz := _megahertz() * 1e3) else ""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores{ghz}, Linux {platform.release().partition('.')[0]}, "
        f"Python {platform.python_version()}"
    )


def load(group: str) -> Figure:
    """Report the load of the host before the run: a load above the number of cores distorts the clocks."""
    value = f"{os.getloadavg()[0]:.1f} processes on {os.cpu_count()} cores"
    return Figure(group, "load of this machine in the minute before", value, "measured")


def _megahertz() -> float:
    try:
        with open("/proc/cpuinfo") as file:
            return next(float(line.partition(":")[2]) for line in file if line.startswith("cpu MHz"))
    except (OSError, StopIteration, ValueError):
        return 0.0
