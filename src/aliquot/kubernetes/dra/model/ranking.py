"""The devices that a node publishes, and their order: the scheduler takes the first one that fits.

Left out are devices that cannot be allocated now. Of the others, each profile gets its best few, and every whole GPU is
published. A warm instance comes first, then what the score prefers:

- ``fragmentation``: the placement that blocks the fewest free placements of plain profiles, large ones counted more.
- ``keep-whole-gpus``: the fullest GPU first, so that empty ones stay empty.
- ``first-fit``: GPUs by address, memory slices from the lowest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, reduce
from itertools import zip_longest
from operator import or_
from typing import Literal

import msgspec

from aliquot.core.model.catalog import Family
from aliquot.core.model.placement import Placement
from aliquot.core.planner.placement_table import PlacementTable, compiled_table
from aliquot.kubernetes.dra.model.device import CounterSet, DraDevice
from aliquot.kubernetes.dra.model.layout import SliceLayout
from aliquot.kubernetes.dra.model.occupancy import Blocking, Occupancy
from aliquot.kubernetes.dra.model.offer import Offer

_ALWAYS = 2
"""Devices of each profile that are published whenever they are the best."""

ScoreName = Literal["fragmentation", "keep-whole-gpus", "first-fit"]


class GpuRoom(msgspec.Struct, frozen=True):
    """A GPU as a score sees it. ``table`` is None without MIG."""

    table: PlacementTable | None
    mask: int
    """Memory slices that are taken, as bits."""


Score = Callable[[GpuRoom, DraDevice], tuple[int, ...]]
"""Rates a device. The lowest value comes first."""


class PublishPolicy(msgspec.Struct, frozen=True):
    """The number and the choice of published devices."""

    score: ScoreName = "fragmentation"
    per_profile: int = 8
    """Free devices of each profile in each slice, unless more are published already."""
    layout: SliceLayout = SliceLayout()


class PublishedChoice(msgspec.Struct, frozen=True):
    """The devices that a node should publish now, in the order of the slices."""

    devices: tuple[DraDevice, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()
    gpus: tuple[str, ...] = ()


def fragmentation_score(room: GpuRoom, device: DraDevice) -> tuple[int, ...]:
    """Prefer the device that takes the least from other profiles: the sizes of the free placements that it blocks."""
    if room.table is None or device.whole:
        return (0,)
    lost = (size for mask, size in _plain_placements(room.table.family) if mask & device.mask and not mask & room.mask)
    return (sum(lost),)


@lru_cache(maxsize=64)
def _plain_placements(family: Family) -> tuple[tuple[int, int], ...]:
    """Return mask and size of every placement of plain profiles."""
    return tuple((place.mask, place.size) for profile in family.plain_profiles for place in profile.placements)


def whole_gpus_score(room: GpuRoom, device: DraDevice) -> tuple[int, ...]:
    """Prefer the GPU with the fewest free memory slices, then the device that fragments it least."""
    slices = room.table.family.memory_slices if room.table is not None else 0
    return (slices - room.mask.bit_count(), *fragmentation_score(room, device))


def first_fit_score(room: GpuRoom, device: DraDevice) -> tuple[int, ...]:
    """Prefer nothing: devices stay in the order of GPUs and memory slices."""
    return ()


SCORES: dict[ScoreName, Score] = {
    "fragmentation": fragmentation_score,
    "keep-whole-gpus": whole_gpus_score,
    "first-fit": first_fit_score,
}


def choose_devices(
    offer: Offer, occupancy: Occupancy, policy: PublishPolicy, published: Collection[str] = ()
) -> PublishedChoice:
    """Return what to publish: the best free devices, then all allocated ones by name.

    A slice has room for a limited number of devices. Whole GPUs come first, since claims for all GPUs of a node are
    common. If the others do not all fit, every profile keeps at least its best.
    Beyond the best few, devices that are ``published`` already are preferred: a change of their order is one write, and
    hiding one takes two.
    """
    blocking = Blocking(offer, occupancy)
    allocated = sorted((d for d in offer.devices if d.name in occupancy.allocated), key=lambda device: device.name)
    free: list[_Ranked] = []
    for group in policy.layout.groups(offer.gpus):
        room = policy.layout.most_devices - policy.layout.reserve - sum(device.pci in group for device in allocated)
        ranked = _ranked(offer, occupancy, blocking, policy, group)
        whole = [one for each in ranked for one in each if one.device.whole]
        parts = [_preferred(each, policy.per_profile, published) for each in ranked if not each[0].device.whole]
        free += [*whole, *_most_even(parts, room - len(whole))]
    order = _profile_order(offer)
    free.sort(key=lambda each: (order(each.device), each.rank))
    return PublishedChoice((*(each.device for each in free), *allocated), offer.counter_sets, offer.gpus)


class _Ranked(msgspec.Struct, frozen=True):
    rank: int
    device: DraDevice


def _ranked(
    offer: Offer, occupancy: Occupancy, blocking: Blocking, policy: PublishPolicy, group: Sequence[str]
) -> list[list[_Ranked]]:
    """Return the free devices of each profile, best first."""
    tables = {pci: compiled_table(family) for pci, family in offer.families.items()}
    numbers = {device.name: number for number, device in enumerate(offer.devices)}
    score = SCORES[policy.score]

    def rank(device: DraDevice, before: Sequence[DraDevice]) -> tuple[int, ...]:
        table = tables.get(device.pci)
        mask = reduce(or_, (other.mask for other in before), blocking.mask(device.pci))
        displaced = _destroyed(device, occupancy, table)
        return (not device.warm, *score(GpuRoom(table, mask), device), displaced, numbers[device.name])

    by_profile: dict[str, list[DraDevice]] = {}
    for device in offer.devices:
        if device.pci in group and blocking.free(device):
            by_profile.setdefault(device.vgpu or device.profile or "", []).append(device)
    orders = (_burst_order(devices, rank, blocking, policy.per_profile) for devices in by_profile.values())
    return [[_Ranked(number, device) for number, device in enumerate(order)] for order in orders]


def _burst_order(
    devices: Sequence[DraDevice],
    rank: Callable[[DraDevice, Sequence[DraDevice]], tuple[int, ...]],
    blocking: Blocking,
    most: int,
) -> list[DraDevice]:
    """Return devices of one profile in the order in which a burst of claims should get them.

    Each of the first ``most`` is the best if all before it are allocated. So a burst fills one GPU after the other, and
    a claim for several devices of one GPU finds them. The others follow by their own rank.
    """
    first = {device.name: rank(device, ()) for device in devices}
    now = dict(first)
    before: dict[str, list[DraDevice]] = {}
    order: list[DraDevice] = []
    left = list(devices)
    while left and len(order) < most:
        best = min(left, key=lambda device: now[device.name])
        order.append(best)
        chosen = before.setdefault(best.pci, [])
        chosen.append(best)
        left = [device for device in left if device is not best and blocking.free(device, chosen)]
        now |= {device.name: rank(device, chosen) for device in left if device.pci == best.pci}
    names = {device.name for device in order}
    others = (device for device in devices if device.name not in names)
    return [*order, *sorted(others, key=lambda device: first[device.name])]


def _preferred(ranked: Sequence[_Ranked], most: int, published: Collection[str]) -> list[_Ranked]:
    """Return devices of a profile in the order in which they get room."""
    best, others = ranked[: min(most, _ALWAYS)], ranked[min(most, _ALWAYS) :]
    stay = [each for each in others if each.device.name in published]
    new = [each for each in others if each.device.name not in published]
    return [*best, *stay, *new[: max(0, most - len(best) - len(stay))]]


def _destroyed(device: DraDevice, occupancy: Occupancy, table: PlacementTable | None) -> int:
    """Return how many idle instances the device would displace."""
    displaced = 0
    for pci, profile_id, start in occupancy.idle:
        if pci == device.pci and table is not None and (profile_id, start) != (device.profile_id, device.start):
            profile = table.profiles.get(profile_id)
            mask = Placement(start, profile.size).mask if profile is not None else 0
            displaced += device.profile is None or bool(mask & device.mask)
    return displaced


def _most_even(ranked: Sequence[Sequence[_Ranked]], most: int) -> list[_Ranked]:
    """Return at most this many devices: the best of every profile, then every second best, and so on."""
    rounds = (one for each in zip_longest(*ranked) for one in each if one is not None)
    return [one for _, one in zip(range(most), rounds, strict=False)]


def _profile_order(offer: Offer) -> Callable[[DraDevice], tuple[int, str]]:
    """Order small profiles before large ones and whole GPUs, so that a claim for any device gets the smallest."""

    def key(device: DraDevice) -> tuple[int, str]:
        family = offer.families.get(device.pci)
        size = 1001 if device.whole else 1000 * device.size // family.memory_slices if family is not None else 0
        return size, device.vgpu or device.profile or ""

    return key
