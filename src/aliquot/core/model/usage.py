"""Usage of GPUs and GPU instances: numbers that change all the time and that no plan depends on."""

from __future__ import annotations

import msgspec

GPM = "gpm"
NVML = "nvml"
DCGM = "dcgm"
"""Sources of a share of computing time.

- ``gpm``: share of multiprocessors that were busy between two samples (Hopper and later).
- ``nvml``: share of time in which anything ran on a whole GPU.
- ``dcgm``: the same for a GPU instance, as dcgm-exporter reports it.
"""


class Usage(msgspec.Struct, frozen=True):
    """The usage of one GPU instance, or of a whole GPU outside MIG mode.

    Compute instances share the memory of their GPU instance, which is counted once. A GPU instance without compute
    instances reports nothing. ``planner.usage_tracking`` fills in the values over time.
    """

    gpu: str
    instance: int | None = None
    """None for a whole GPU."""
    profile: str = ""
    memory_used_mib: int | None = None
    """In MiB. None if the driver does not report it. The same holds for ``memory_total_mib``."""
    memory_total_mib: int | None = None
    compute: float | None = None
    """Share of computing time or multiprocessors, 0 to 1. None if unknown; never estimated."""
    source: str = ""
    """Source of ``compute``: ``gpm``, ``nvml``, ``dcgm`` or ""."""
    idle_since: float | None = None
    """First sample since which every sample found it idle, in seconds of wall time.

    None while it is held or not watched. Never earlier than the true time.
    """
    peak_mib: int | None = None
    """The maximum of all samples since ``watched_since``. The same holds for ``peak_compute``."""
    watched_since: float = 0.0
    """Time of the first sample, 0 if not watched."""
    peak_compute: float | None = None


def coarsen(usage: tuple[Usage, ...]) -> tuple[Usage, ...]:
    """Round usage for a document in a cluster, which should not change with every sample.

    Memory is in sixteenths, times in whole minutes, shares are dropped. Rounding keeps "at most" and "idle for" true.
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
