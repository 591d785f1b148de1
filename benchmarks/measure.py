"""Medians, spreads and verdicts: what every experiment says its results with."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter

import msgspec


class Figure(msgspec.Struct, frozen=True):
    """One line of the result table. ``kind``: measured (a clock on this machine), simulated (a clock, on a simulated
    node), replayed (counted, with call times that somebody else measured) or quoted (somebody else's figure, from
    another machine). ``verdict``: reached, missed, skipped, or - where there is no goal.
    """

    group: str
    name: str
    value: str
    kind: str
    goal: str = ""
    verdict: str = "-"
    spread: str = ""


Say = Callable[[Figure], None]


def at_most(value: float, goal: float) -> str:
    return "reached" if value <= goal else "missed"


def at_least(value: float, goal: float) -> str:
    return "reached" if value >= goal else "missed"


def spread(values: Sequence[float], form: str, unit: str = "") -> str:
    """Least to greatest of the repeats, and how many there were."""
    return f"{min(values):{form}}-{max(values):{form}}{unit}, n={len(values)}"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, list[float]]:
    """The median of the ratios of alternating repeats, and the ratios: what disturbs the machine hits both sides."""
    pairs = [a / b for a, b in zip(ours, theirs, strict=True)]
    return median(pairs), pairs


def clock(act: Callable[[], object]) -> float:
    """Seconds that one call takes."""
    start = perf_counter()
    act()
    return perf_counter() - start


def alternate(repeats: int, sides: dict[str, Callable[[], float]]) -> dict[str, list[float]]:
    """Every side once per repeat, in turn; the order is reversed every second time."""
    out: dict[str, list[float]] = {name: [] for name in sides}
    for n in range(repeats):
        for name in list(sides) if n % 2 == 0 else list(sides)[::-1]:
            out[name].append(sides[name]())
    return out


def digest(*parts: bytes) -> str:
    """SHA-256 of an input, shortened."""
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
    """The class of this machine: never its name."""
    ghz = f" at {hertz / 1e6:.1f} GHz" if (hertz := _megahertz() * 1e3) else ""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores{ghz}, Linux {platform.release().partition('.')[0]}, "
        f"Python {platform.python_version()}"
    )


def load(group: str) -> Figure:
    """How busy the machine was before: with more than its cores, clocks show what else runs there."""
    value = f"{os.getloadavg()[0]:.1f} processes on {os.cpu_count()} cores"
    return Figure(group, "load of this machine in the minute before", value, "measured")


def _megahertz() -> float:
    try:
        with open("/proc/cpuinfo") as file:
            return next(float(line.partition(":")[2]) for line in file if line.startswith("cpu MHz"))
    except (OSError, StopIteration, ValueError):
        return 0.0
