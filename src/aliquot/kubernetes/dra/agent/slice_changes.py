"""The slices to write, from the published and the wanted ones. Pure.

The rules keep the scheduler from combining what the hardware cannot:

- A device that is allocated stays published in its slice as it is.
- A free device that is no longer wanted is tainted first, and removed ``HIDE_S`` seconds later: the scheduler may be
  allocating it at this moment.
- A device is in one slice at a time, so each write is complete in itself. Only a change of the number of slices or of
  counters begins a new generation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from aliquot.kubernetes.dra.agent.resource_objects import ResourceSlice, Spec

HIDE_S = 5.0
HIDDEN = "aliquot.dev/hidden"
"""Key of the taint of a device that is about to be removed."""
MOST_DEVICES = 64
"""Devices of a slice that have counters or taints."""


class SliceContent(msgspec.Struct, frozen=True):
    """The wanted content of one slice of a pool: devices, shared counters, or both before Kubernetes 1.35."""

    pool: str
    devices: tuple[Spec, ...] = ()
    shared_counters: tuple[Spec, ...] = ()


class HiddenDevices:
    """When each published device got its taint, in monotonic seconds."""

    def __init__(self) -> None:
        self._since: dict[tuple[str, str], float] = {}

    def begin(self, pool: str, device: str, now: float) -> None:
        """Record that a device gets its taint now."""
        self._since[pool, device] = now

    def age(self, pool: str, device: str, now: float) -> float:
        """Return for how many seconds a device has its taint. One that an earlier agent tainted begins now."""
        return now - self._since.setdefault((pool, device), now)


class PoolState(msgspec.Struct, frozen=True):
    """The slices of one pool, by their place in it."""

    slices: tuple[SliceContent, ...]
    next_s: float | None = None
    """Seconds until a hidden device may be removed; None if there is none."""


def settle(
    published: Sequence[ResourceSlice | None],
    wanted: Sequence[SliceContent],
    allocated: Collection[str] | None,
    hidden: HiddenDevices,
    now: float,
) -> PoolState:
    """Return what to publish now for one pool.

    ``published`` are its slices by place, None where one is missing. ``allocated`` are names of devices, None if that
    is not known: then devices are only added.
    """
    pool = next(each.pool for each in (*wanted, *published) if each is not None)
    places = {device["name"]: n for n, each in enumerate(published) if each for device in each.devices}
    search = _Settlement(pool, places, allocated, hidden, now)
    found: list[SliceContent] = []
    for place in range(max(len(published), len(wanted))):
        present = published[place] if place < len(published) else None
        content = wanted[place] if place < len(wanted) else SliceContent(pool)
        old = {device["name"]: device for device in present.devices} if present else {}
        new = {device["name"]: device for device in content.devices}
        unwanted = [device for name, device in old.items() if name not in new and places[name] == place]
        left = search.leftovers(unwanted)
        devices = search.devices(old, new, MOST_DEVICES - len(left))
        found.append(SliceContent(pool, (*devices, *left), content.shared_counters))
    while len(found) > len(wanted) and not found[-1].devices:
        found.pop()
    return PoolState(tuple(found), min(search.waits, default=None))


class _Settlement:
    """The decisions about the devices of one pool. ``places`` are the slices in which they are published."""

    def __init__(
        self, pool: str, places: Mapping[str, int], allocated: Collection[str] | None, hidden: HiddenDevices, now: float
    ) -> None:
        self._pool = pool
        self._places = places
        self._allocated = allocated
        self._hidden = hidden
        self._now = now
        self.waits: list[float] = []

    def leftovers(self, unwanted: Sequence[Spec]) -> list[Spec]:
        """Return the devices of a slice that are not wanted there but must stay: allocated ones, and hidden ones."""
        found = []
        for device in unwanted:
            name = device["name"]
            if self._allocated is None or name in self._allocated:
                found.append(device)
                continue
            age = 0.0
            if _is_hidden(device):
                age = self._hidden.age(self._pool, name, self._now)
            else:
                self._hidden.begin(self._pool, name, self._now)
                device = _with_taint(device)
            if age < HIDE_S:
                self.waits.append(HIDE_S - age)
                found.append(device)
            else:
                self.waits.append(0.0)  # it may be wanted in another slice, from which it had to stay out
        return found

    def devices(self, old: Mapping[str, Spec], new: Mapping[str, Spec], room: int) -> list[Spec]:
        """Return the wanted devices of a slice. One that is still in another slice waits, as one without room does."""
        found = []
        fresh = room - len(old.keys() & new.keys())
        for name, device in new.items():
            if name in old:
                found.append(old[name] if self._allocated is None or name in self._allocated else device)
            elif name not in self._places and fresh > 0:
                found.append(device)
                fresh -= 1
        return found


def _is_hidden(device: Spec) -> bool:
    return any(taint.get("key") == HIDDEN for taint in device.get("taints") or ())


def _with_taint(device: Spec) -> Spec:
    return {**device, "taints": [*(device.get("taints") or ()), {"key": HIDDEN, "effect": "NoSchedule"}]}


def is_same(present: object, wanted: object) -> bool:
    """Report whether a published value has what is wanted. The API server adds the time to a taint."""
    if isinstance(present, Mapping) and isinstance(wanted, Mapping):
        keys = (set(present) | set(wanted)) - ({"timeAdded"} - set(wanted))
        return all(key in present and key in wanted and is_same(present[key], wanted[key]) for key in keys)
    if isinstance(present, list | tuple) and isinstance(wanted, list | tuple):
        return len(present) == len(wanted) and all(map(is_same, present, wanted))
    return present == wanted


def spec_fields(content: SliceContent, generation: int, count: int) -> Spec:
    """Return the fields of a slice's spec that may change."""
    pool = {"name": content.pool, "generation": generation, "resourceSliceCount": count}
    fields: Spec = {"pool": pool}
    if content.shared_counters:
        fields["sharedCounters"] = list(content.shared_counters)
    if content.devices or not content.shared_counters:
        fields["devices"] = list(content.devices)
    return fields


def changed_fields(present: Spec, wanted: Spec) -> Spec:
    """Return the fields of a spec that differ, with None for those to remove. An empty list is the same as none."""
    found = {key: value for key, value in wanted.items() if not is_same(present.get(key) or [], value or [])}
    gone = {key: None for key in ("devices", "sharedCounters") if key not in wanted and present.get(key)}
    return found | gone


def generation_of(published: Sequence[ResourceSlice | None], state: PoolState) -> int:
    """Return the pool's generation: a higher one if the number of slices or the counters change."""
    present = [each for each in published if each is not None]
    newest = max((each.generation for each in present), default=0)
    if not present:
        return 1
    count = len(state.slices)
    for place, content in enumerate(state.slices):
        each = published[place] if place < len(published) else None
        if each is None:
            continue
        same = each.spec["pool"].get("resourceSliceCount") == count and each.generation == newest
        counters = each.spec.get("sharedCounters") or []
        if not same or not is_same(counters, list(content.shared_counters)):
            return newest + 1
    return newest
