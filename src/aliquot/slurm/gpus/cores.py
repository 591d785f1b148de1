"""The cores near a GPU for ``Cores=``, in Slurm's numbers, from sysfs.

Slurm numbers cores as hwloc does: package by package, and within a package by what cores share (die, L3), each group in
the order of its first processor. With threads, the kernel's processor numbers differ. Slurm schedules GRES by whole
sockets, so cores near a GPU that are not whole sockets do harm (gres.conf(5)), unless NUMA nodes or L3 caches count as
sockets (SlurmdParameters).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

import msgspec

PROCESSORS = "sys/devices/system/cpu"
AUTO, NEAR, NONE = "auto", "near", "none"
CHOICES = (AUTO, NEAR, NONE)
MOST = 65536
_PART = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)


class Processor(msgspec.Struct, frozen=True):
    """The groups that a processor (a thread of a core) belongs to, each named by its lowest processor."""

    package: int
    die: int
    cache: int
    core: int


class Cores(msgspec.Struct, frozen=True):
    """The near cores of GPUs."""

    by_pci: Mapping[str, str] = {}
    """Slurm's core numbers by PCI address, for GPUs that have near cores."""
    notes: tuple[str, ...] = ()
    """Reasons why a GPU is omitted."""


def near_cores(addresses: Iterable[str], choice: str = AUTO, root: str = "/") -> Cores:
    """Return the cores near GPUs, from sysfs below a root directory.

    ``auto`` returns only whole sockets, ``near`` all near cores, and ``none`` nothing. Omits a GPU whose location is
    unknown or that is equally near to all cores.
    """
    if choice == NONE:
        return Cores()
    processors = _processors(root)
    numbers = numbered(processors)
    found: dict[str, str] = {}
    parts = []
    for pci in addresses:
        near = {p for p in members(_line(root, f"sys/bus/pci/devices/{pci}/local_cpulist")) if p in numbers}
        cores = sorted({numbers[p] for p in near})
        if not cores or len(cores) == len(set(numbers.values())):
            continue
        if choice == AUTO and not _whole_sockets(near, processors):
            parts.append(pci)
            continue
        found[pci] = ranges(cores)
    notes = (_partial(parts),) if parts else ()
    return Cores(found, notes)


def _partial(parts: list[str]) -> str:
    return (
        f"the cores near {', '.join(parts)} are part of a socket, but Slurm schedules whole sockets: Cores= is omitted "
        "(with SlurmdParameters=numa_node_as_socket, use --cores near)"
    )


def numbered(processors: Mapping[int, Processor]) -> dict[int, int]:
    """Return Slurm's core number of each processor."""
    positions = {n: (p.package, p.die, p.cache, p.core) for n, p in processors.items()}
    order = {position: n for n, position in enumerate(sorted(set(positions.values())))}
    return {n: order[position] for n, position in positions.items()}


def _whole_sockets(near: set[int], processors: Mapping[int, Processor]) -> bool:
    sockets = {processors[p].package for p in near}
    return near == {n for n, p in processors.items() if p.package in sockets}


def members(text: str) -> tuple[int, ...]:
    """Parse a list of numbers such as ``0-3,8``, of the kernel or of Slurm.

    Invalid parts are skipped. Returns () if it has more than ``MOST`` numbers, because lists from the environment of
    users' processes are not trusted.
    """
    found: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match:
            low, high = int(match[1]), int(match[2] or match[1])
            if len(found) + high - low >= MOST:
                return ()
            found += range(low, high + 1)
    return tuple(found)


def ranges(numbers: Iterable[int]) -> str:
    """Format ascending numbers as a list such as ``0-3,8``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{low}-{high}" if low != high else f"{low}" for low, high in runs)


def _processors(root: str) -> dict[int, Processor]:
    found: dict[int, Processor] = {}
    for number in members(_line(root, f"{PROCESSORS}/online")):
        folder = f"{PROCESSORS}/cpu{number}"
        # The second name is that of kernels before Linux 4.20.
        core = _first(root, f"{folder}/topology/core_cpus_list", f"{folder}/topology/thread_siblings_list")
        package = _first(root, f"{folder}/topology/package_cpus_list", f"{folder}/topology/core_siblings_list")
        if core is None or package is None:
            continue
        die = _first(root, f"{folder}/topology/die_cpus_list")
        cache = _first(root, f"{folder}/cache/index3/shared_cpu_list")
        found[number] = Processor(package, package if die is None else die, package if cache is None else cache, core)
    return found


def _first(root: str, *paths: str) -> int | None:
    """Return the lowest processor of the first list that exists, or None."""
    return next((found[0] for path in paths if (found := members(_line(root, path)))), None)


def _line(root: str, path: str) -> str:
    try:
        with open(os.path.join(root, path)) as file:
            return file.read().strip()
    except OSError:
        return ""
