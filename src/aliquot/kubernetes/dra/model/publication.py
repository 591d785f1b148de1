"""The next publication of a node, from the present one and the devices that it should publish.

The scheduler forgets what an allocated device takes if the device is no longer published, and then allocates the same
room twice (kubernetes#140802). Therefore:

- An allocated device is published as it was, whatever happens to its GPU.
- A free device is first tainted, so that no new claim gets it, and removed after ``GRACE_S``. A claim that got it in
  the meantime shows up as allocated and keeps it. One that shows up even later brings it back: the scheduler writes an
  allocation after it has bound the volumes of the pod.
- A device that an allocated one blocks is removed at once, since nothing can get it.

The state is in the slices: the taint says since when it is there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta

import msgspec

from aliquot.kubernetes.dra.model.device import CounterSet, DraDevice
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.naming import OWN_DOMAIN
from aliquot.kubernetes.dra.model.objects import DeviceTaint
from aliquot.kubernetes.dra.model.ranking import PublishedChoice

HIDDEN_TAINT = f"{OWN_DOMAIN}/hidden"
GRACE_S = 5.0
"""How long a device is tainted before it is removed. A controller that was 0.3 s late without it over-committed."""


class Publication(msgspec.Struct, frozen=True):
    """The devices and counters that a node publishes."""

    devices: tuple[DraDevice, ...] = ()
    """In the order of the slices."""
    counter_sets: tuple[CounterSet, ...] = ()
    gpus: tuple[str, ...] = ()
    """PCI addresses of all GPUs of the node, also of those that are gone and have devices. They divide it into slices.
    """

    @property
    def hidden(self) -> dict[str, datetime]:
        """The devices that are about to be removed, with the time since when they are tainted."""
        return {d.name: since for d in self.devices if (since := hidden_since(d)) is not None}

    def due(self) -> datetime | None:
        """Return when the next device can be removed. None if none is tainted."""
        since = min(self.hidden.values(), default=None)
        return None if since is None else since + timedelta(seconds=GRACE_S)


def hidden_since(device: DraDevice) -> datetime | None:
    """Return since when a device is tainted by Aliquot. None if it is not."""
    for taint in device.taints:
        if taint.key == HIDDEN_TAINT:
            return _parsed(taint.time_added)
    return None


def next_publication(
    previous: Publication,
    desired: PublishedChoice,
    allocated: Collection[str],
    now: datetime,
    layout: SliceLayout | None = None,
) -> Publication:
    """Return what to publish now. ``now`` has a time zone. Equal input gives the same result as the publication itself:
    nothing to write.
    """
    before = {device.name: device for device in previous.devices}
    wanted = {device.name: device for device in desired.devices}
    leaving = [
        left
        for device in previous.devices
        if device.name not in allocated and device.name not in wanted
        if (left := _leaving(device, now)) is not None
    ]
    kept = {name: before.get(name) or wanted[name] for name in allocated if name in before or name in wanted}
    free = [device for device in desired.devices if device.name not in kept]
    stay = [*kept.values(), *leaving]
    gpus = tuple(sorted({*desired.gpus, *(device.pci for device in (*free, *stay))}))
    free = _with_room(free, before, stay, layout or SliceLayout(), gpus)
    devices = (*free, *leaving, *(kept[name] for name in sorted(kept)))
    return Publication(devices, _counter_sets(desired.counter_sets, previous.counter_sets, devices), gpus)


def _leaving(device: DraDevice, now: datetime) -> DraDevice | None:
    """Return a device that is to be hidden as it is published now. None if it can be removed."""
    since = hidden_since(device)
    if since is None:
        taint = DeviceTaint(HIDDEN_TAINT, "NoSchedule", time_added=_printed(now))
        return msgspec.structs.replace(device, taints=(*device.taints, taint))
    return device if now < since + timedelta(seconds=GRACE_S) else None


def _with_room(
    free: list[DraDevice],
    before: Mapping[str, DraDevice],
    others: list[DraDevice],
    layout: SliceLayout,
    gpus: tuple[str, ...],
) -> list[DraDevice]:
    """Hold back new devices, the last ones first, for which a slice has no room until tainted ones are removed."""
    held_back: set[str] = set()
    for group in layout.groups(gpus):
        here = [device for device in free if device.pci in group]
        excess = len(here) + sum(device.pci in group for device in others) - layout.most_devices
        new = [device.name for device in here if device.name not in before]
        held_back.update(new[max(0, len(new) - excess) :] if excess > 0 else ())
    return [device for device in free if device.name not in held_back]


def _counter_sets(
    sets: tuple[CounterSet, ...], previous: tuple[CounterSet, ...], devices: tuple[DraDevice, ...]
) -> tuple[CounterSet, ...]:
    """Return the counter sets, and those that devices of a GPU still need which is gone."""
    names = {each.name for each in sets}
    needed = {device.counter_set for device in devices}
    gone = (each for each in previous if each.name not in names and each.name in needed)
    return tuple(sorted((*sets, *gone), key=lambda each: each.pci))


def _printed(moment: datetime) -> str:
    """Return the next whole second: the API server keeps no fractions, and the grace period must not shrink."""
    later = moment.astimezone(UTC) + timedelta(microseconds=999_999)
    return later.strftime("%Y-%m-%dT%H:%M:%SZ")


def _parsed(text: str | None) -> datetime:
    """Parse the time of a taint. A taint without a valid one counts as old: the API server sets a missing one."""
    try:
        found = datetime.fromisoformat(text or "")
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
