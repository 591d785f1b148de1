"""Usage over time: since when a device is idle, and its peak usage.

A device is a GPU instance, or a whole GPU outside MIG mode. It counts as the same device as in the previous sample on
three conditions:

- Its GPU, placement, profile and MIG devices are the same.
- The node has not rebooted.
- Aliquot's journal does not say that it was created again in between.

The UUID of a MIG device follows from its placement, so an instance that was created again has the old UUID. If another
program destroys an instance between two samples and creates it again at the same placement, that is not detected.

After a pause longer than ``GAP_S`` all tracking starts again, because devices may have been used in the pause. So a
lost record or a stopped watcher makes the reported idle time shorter, never longer. A use that is shorter than the time
between two samples can be missed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TypeVar

import msgspec

from aliquot.core.model.inventory import Gpu, GpuInstance, Inventory
from aliquot.core.model.usage import Usage

STEP_MIB = 128
GAP_S = 180.0
"""Longest time between two samples that still counts as watching: several intervals of an agent, or its restart."""

N = TypeVar("N", int, float)
Recreation = tuple[str, str]
"""A GPU's PCI address, and what was created again on it.

An instance is given by its placement (``4:4``), compute instances by the id of their GPU instance (``#2``), everything
by "".
"""


class TrackedDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """The history of one device, in seconds of wall time."""

    gpu: str
    uuid: str
    since: float
    """First sample."""
    instance: int | None = None
    """None for a whole GPU."""
    profile: str = ""
    placement: str = ""
    devices: tuple[str, ...] = ()
    idle: float | None = None
    """First sample since which every sample found it idle. None while it is held."""
    peak_mib: int | None = None
    """None if no sample had a value. The same holds for ``peak_compute``."""
    peak_compute: float | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """The identity of the device, which is the same in the next sample."""
        return self.gpu, self.uuid, self.instance, self.profile, self.placement, self.devices


class UsageHistory(msgspec.Struct, frozen=True):
    """The history of all devices of a node in the current boot."""

    boot: str = ""
    at: float = 0.0
    """Time of the last sample in seconds of wall time."""
    tracked: tuple[TrackedDevice, ...] = msgspec.field(default=(), name="pieces")


def update_history(
    previous: UsageHistory,
    inventory: Inventory,
    usage: Iterable[Usage],
    now: float,
    boot: str = "",
    *,
    recreated: Collection[Recreation] = (),
) -> UsageHistory:
    """Add one sample to the history.

    ``recreated`` is what Aliquot has created again since the previous sample. A clock that was set back restarts all
    tracking, as a pause does.
    """
    gap = not 0 <= now - previous.at <= GAP_S or boot != previous.boot
    known = {} if gap else {p.key: p for p in previous.tracked if not _is_recreated(p, recreated)}
    by_device = {(u.gpu, u.instance): u for u in usage}
    found: list[TrackedDevice] = []
    for gpu in inventory.gpus:
        for fresh, held in _devices(gpu, now):
            before = known.get(fresh.key, fresh)
            reading = by_device.get((fresh.gpu, fresh.instance), Usage(fresh.gpu))
            idle = None if held else now if before.idle is None else before.idle
            found.append(
                msgspec.structs.replace(
                    before,
                    idle=idle,
                    peak_mib=_larger(before.peak_mib, reading.memory_used_mib),
                    peak_compute=_larger(before.peak_compute, reading.compute),
                )
            )
    return UsageHistory(boot, now, tuple(found))


def with_history(history: UsageHistory, usage: Iterable[Usage]) -> tuple[Usage, ...]:
    """Return every device with its last reading and its history.

    Includes devices without a reading, which have no compute instance.
    """
    readings = {(u.gpu, u.instance): u for u in usage}
    return tuple(
        msgspec.structs.replace(
            readings.get((p.gpu, p.instance), Usage(p.gpu, p.instance, p.profile)),
            idle_since=p.idle,
            peak_mib=p.peak_mib,
            peak_compute=p.peak_compute,
            watched_since=p.since,
        )
        for p in history.tracked
    )


def usage_of_unchanged(
    usage: Iterable[Usage], before: Inventory, now: Inventory, changed: Collection[str] = ()
) -> tuple[Usage, ...]:
    """Return the usage of devices that are still the same, given the inventories then and now.

    Drops GPUs that were changed in between (``changed``, PCI addresses).
    """
    old_keys, new_keys = (
        {(p.gpu, p.instance): p.key for gpu in inventory.gpus for p, _ in _devices(gpu, 0.0)}
        for inventory in (before, now)
    )
    same = {device for device, key in old_keys.items() if new_keys.get(device) == key and device[0] not in changed}
    return tuple(u for u in usage if (u.gpu, u.instance) in same)


def round_peaks(history: UsageHistory) -> UsageHistory:
    """Round peaks up for the record.

    A small rise then needs no write, and "at most" stays true after a restart.
    """
    return msgspec.structs.replace(history, tracked=tuple(map(_round_device, history.tracked)))


def worth_writing(recorded: UsageHistory, now: UsageHistory) -> bool:
    """Report whether the rounded record ``recorded`` is out of date. Passing time does not count."""
    before = {p.key: p for p in recorded.tracked}
    if recorded.boot != now.boot or before.keys() != {p.key for p in now.tracked}:
        return True
    return any(_differs(before[p.key], p) for p in now.tracked)


def _differs(recorded: TrackedDevice, now: TrackedDevice) -> bool:
    if (recorded.since, recorded.idle) != (now.since, now.idle):
        return True
    return _above(now.peak_mib, recorded.peak_mib) or _above(now.peak_compute, recorded.peak_compute)


def _above(one: float | None, other: float | None) -> bool:
    return one is not None and (other is None or one > other)


def _round_device(device: TrackedDevice) -> TrackedDevice:
    mib, share = device.peak_mib, device.peak_compute
    return msgspec.structs.replace(
        device,
        peak_mib=None if mib is None else -(-mib // STEP_MIB) * STEP_MIB,
        peak_compute=None if share is None else min(1.0, math.ceil(share * 20) / 20),
    )


def _is_recreated(device: TrackedDevice, recreated: Collection[Recreation]) -> bool:
    return any((device.gpu, what) in recreated for what in ("", device.placement, f"#{device.instance}"))


def _devices(gpu: Gpu, now: float) -> list[tuple[TrackedDevice, bool]]:
    """Return the devices that can be used, and whether each is held.

    A GPU in MIG mode is used only through its instances.
    """
    if gpu.lost or gpu.passthrough:
        return []
    if not gpu.mig.enabled:
        held = bool(gpu.holders) or any(v.held for v in gpu.vgpus)
        return [(TrackedDevice(gpu.pci, gpu.uuid, now, idle=None if held else now), held)]
    return [(_instance_device(gpu, i, now), i.held) for i in gpu.instances]


def _instance_device(gpu: Gpu, instance: GpuInstance, now: float) -> TrackedDevice:
    devices = tuple(c.uuid for c in instance.compute_instances)
    idle = None if instance.held else now
    return TrackedDevice(gpu.pci, gpu.uuid, now, instance.id, instance.profile, instance.placement, devices, idle)


def _larger(first: N | None, second: N | None) -> N | None:
    return second if first is None else first if second is None else max(first, second)
