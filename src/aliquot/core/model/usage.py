"""What the pieces of a GPU are used for: figures that change all the time and that no plan depends on."""

from __future__ import annotations

import msgspec

GPM = "gpm"
NVML = "nvml"
DCGM = "dcgm"
"""Where a share of computing time comes from. ``gpm``: the share of multiprocessors that were busy between two looks
(Hopper and later). ``nvml``: the share of time in which anything at all ran on a whole GPU. ``dcgm``: the same of a GPU
instance, as a dcgm-exporter tells it.
"""


class Usage(msgspec.Struct, frozen=True):
    """One GPU instance, or with ``instance`` None a whole GPU outside MIG mode. ``memory_used_mib`` and
    ``memory_total_mib`` are MiB, None where the driver does not say: compute instances share the memory of their GPU
    instance, which is counted once, and one without any compute instance tells nothing. ``compute`` is a share of
    computing time or multiprocessors, 0 to 1, None where nobody can tell: it is never made up. ``source`` is where that
    comes from: ``gpm``, ``nvml``, ``dcgm`` or "".

    What was seen over time, by whoever watches (``planner.usage_tracking``): ``idle_since`` is the first look since
    which every one found it idle (seconds of wall time), None while it is held or where nobody watches: it is never
    older than the truth. ``peak_mib`` and ``peak_compute`` are the most that a look has seen since ``watched_since``,
    the first look at it, which is 0 where nobody watches.
    """

    gpu: str
    instance: int | None = None
    profile: str = ""
    memory_used_mib: int | None = None
    memory_total_mib: int | None = None
    compute: float | None = None
    source: str = ""
    idle_since: float | None = None
    peak_mib: int | None = None
    watched_since: float = 0.0
    peak_compute: float | None = None


def coarsen(usage: tuple[Usage, ...]) -> tuple[Usage, ...]:
    """For whoever must not be told of every breath (a document in a cluster): memory in sixteenths, times in whole
    minutes, no shares. Rounded so that "at most" and "idle for" stay true.
    """
    return tuple(map(_coarsen, usage))


def _coarsen(usage: Usage) -> Usage:
    part = max(1, (usage.memory_total_mib or 0) // 16)
    return msgspec.structs.replace(
        usage,
        memory_used_mib=_up(usage.memory_used_mib, part),
        compute=None,
        source="",
        idle_since=None if usage.idle_since is None else -(-usage.idle_since // 60) * 60,
        peak_mib=_up(usage.peak_mib, part),
        watched_since=-(-usage.watched_since // 60) * 60,
        peak_compute=None if usage.peak_compute is None else -(-usage.peak_compute // 0.25) * 0.25,
    )


def _up(value: int | None, step: int) -> int | None:
    return None if value is None else -(-value // step) * step
