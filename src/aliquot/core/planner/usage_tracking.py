"""What looks at a node add up to over time: since when a piece is idle, and the most that was seen of its use.

A piece is a GPU instance, or a whole GPU outside MIG mode. It is the same one as at the look before if its GPU, place,
profile and MIG devices are, the machine has not rebooted, and nobody is known to have made it anew in between: a MIG
device's UUID follows from its place, so that an instance made anew has the old one's. Aliquot's own changes are known
from the journal. What others destroy and make again at the same place between two looks is taken for the same.

After a pause longer than ``GAP_S`` everything starts anew: what was not looked at may have been used. So a lost record
or a watcher that was away makes what is told younger, never older. A use shorter than the time between two looks can
be missed.
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
"""The longest time between two looks that still count as watching: some of an agent's, or its restart."""

N = TypeVar("N", int, float)
Recreation = tuple[str, str]
"""A GPU's PCI address, and what was made anew on it: an instance by its placement (``4:4``), compute instances by the
id of their GPU instance (``#2``), everything ("").
"""


class TrackedDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece as far as it was watched. ``instance`` None is a whole GPU. ``since`` is its first look, ``idle`` the
    first look since which every one found it idle (None: it is held); seconds of wall time. Peaks are None where
    nothing was told.
    """

    gpu: str
    uuid: str
    since: float
    instance: int | None = None
    profile: str = ""
    placement: str = ""
    devices: tuple[str, ...] = ()
    idle: float | None = None
    peak_mib: int | None = None
    peak_compute: float | None = None

    @property
    def key(self) -> tuple[object, ...]:
        """What makes it the same piece at the next look."""
        return self.gpu, self.uuid, self.instance, self.profile, self.placement, self.devices


class UsageHistory(msgspec.Struct, frozen=True):
    """All pieces of a node at the last look (``at``, seconds of wall time), in that boot of the machine."""

    boot: str = ""
    at: float = 0.0
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
    """What one more look adds. ``recreated`` is what Aliquot made anew since the former one. A clock that was set back
    starts everything anew, as a pause does.
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
    """Every piece with what was just read of it, and what was seen over time. One that nothing was read of (no compute
    instance) is told, too.
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
    """What was told of pieces (of the GPUs as they were then) that are the same ones now. Of GPUs that were changed
    since (``changed``, PCI addresses) nothing is known to be.
    """
    old_keys, new_keys = (
        {(p.gpu, p.instance): p.key for gpu in inventory.gpus for p, _ in _devices(gpu, 0.0)}
        for inventory in (before, now)
    )
    same = {device for device, key in old_keys.items() if new_keys.get(device) == key and device[0] not in changed}
    return tuple(u for u in usage if (u.gpu, u.instance) in same)


def round_peaks(history: UsageHistory) -> UsageHistory:
    """What is written down: peaks rounded up, so that a peak that rises little is no write, and what is said of them
    after a restart ("at most") stays true.
    """
    return msgspec.structs.replace(history, tracked=tuple(map(_round_device, history.tracked)))


def worth_writing(recorded: UsageHistory, now: UsageHistory) -> bool:
    """Whether a record that says ``recorded`` (rounded) is worth a write: not for time that passes."""
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
    """What is there to be used, and whether it is held. A GPU in MIG mode is used by its instances alone."""
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
