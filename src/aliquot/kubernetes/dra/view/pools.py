"""The GPUs of a cluster as their resource slices and claims show them: who has what, what fits, and why not. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations

import msgspec

from aliquot.kubernetes.dra.model.attributes import product_family
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.counters import family_counters, fits, taken
from aliquot.kubernetes.dra.model.device import DraDevice
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.slices import read_publication

WHOLE, WHOLE_FOR_VM = "whole GPU", "whole GPU for a VM"
NOT_PUBLISHED = "the node does not publish it now: what is not a claim may have its room"

_MOST_INSTANCES = 8
"""Claimed devices of which every combination is tried."""

Counts = Mapping[str, int]


class AllocatedView(msgspec.Struct, frozen=True):
    """A device that a claim has."""

    device: str
    profile: str
    """A MIG profile, a vGPU type, ``WHOLE`` or ``WHOLE_FOR_VM``."""
    start: int
    """First memory slice."""
    size: int
    """Memory slices. 0 for a whole GPU, or if the slice does not say it."""
    claim: str
    """``namespace/name``."""
    pods: tuple[str, ...] = ()
    admin: bool = False
    """Access for administration, which takes nothing."""


class FitView(msgspec.Struct, frozen=True):
    """The number of devices of a profile that still fit on a GPU now, of those that are published.

    ``reason`` says why there is none. With ``more``, others may fit that the node publishes once these are taken: the
    slices do not show what jobs, containers and other holders have.
    """

    profile: str
    count: int
    reason: str = ""
    more: bool = False


class DraGpuView(msgspec.Struct, frozen=True):
    """A GPU of a pool."""

    pci: str
    product: str
    allocated: tuple[AllocatedView, ...] = ()
    fits: tuple[FitView, ...] = ()


class DraPoolView(msgspec.Struct, frozen=True):
    """A pool of a driver. ``problems`` are reasons why the scheduler may not use it, or may give a GPU twice."""

    node: str
    driver: str
    pool: str
    gpus: tuple[DraGpuView, ...] = ()
    problems: tuple[str, ...] = ()


class _Place(msgspec.Struct, frozen=True):
    """A device as its GPU could give it. ``device`` is None if it is not published: a node publishes the best few."""

    profile: str
    start: int
    uses: dict[str, int]
    device: DraDevice | None = None


def gpu_pools(slices: Iterable[ResourceSlice], claims: Sequence[ResourceClaim]) -> tuple[DraPoolView, ...]:
    """Return the pools that have GPUs, by node, driver and pool."""
    pools: dict[tuple[str, str, str], list[ResourceSlice]] = {}
    for each in slices:
        pools.setdefault((each.spec.node_name, each.spec.driver, each.spec.pool.name), []).append(each)
    views = [view for key in sorted(pools) if (view := _pool(*key, pools[key], claims)) is not None]
    drivers: dict[tuple[str, str], set[str]] = {}
    for view in views:
        drivers.setdefault((view.node, view.pool), set()).add(view.driver)
    return tuple(_with_shared_name(view, drivers[view.node, view.pool] - {view.driver}) for view in views)


def _with_shared_name(view: DraPoolView, others: Iterable[str]) -> DraPoolView:
    """Add a problem for each other driver with a pool of this name: the scheduler's counters ignore the driver."""
    shared = tuple(
        f"{driver} has a pool of this name: a claim on both can get a GPU twice" for driver in sorted(others)
    )
    return msgspec.structs.replace(view, problems=(*view.problems, *shared))


def _pool(
    node: str, driver: str, pool: str, slices: Sequence[ResourceSlice], claims: Sequence[ResourceClaim]
) -> DraPoolView | None:
    found = read_publication(slices)
    devices = [device for device in found.devices if device.pci]
    if not devices:
        return None
    owners = dict(_owners(driver, pool, claims))
    counters = {each.name: each.counters for each in found.counter_sets}
    gpus = [
        _gpu(pci, [d for d in devices if d.pci == pci], owners, counters) for pci in sorted({d.pci for d in devices})
    ]
    return DraPoolView(node, driver, pool, tuple(gpus), tuple(_problems(slices, devices, owners)))


def _owners(
    driver: str, pool: str, claims: Iterable[ResourceClaim]
) -> Iterator[tuple[str, tuple[tuple[ResourceClaim, bool], ...]]]:
    """Yield each device that claims have, with the claims and whether their access is for administration."""
    owners: dict[str, list[tuple[ResourceClaim, bool]]] = {}
    for claim in claims:
        for result in claim.results:
            if (result.driver, result.pool) == (driver, pool):
                owners.setdefault(result.device, []).append((claim, result.admin_access))
    yield from ((device, tuple(found)) for device, found in owners.items())


def _problems(
    slices: Sequence[ResourceSlice], devices: Sequence[DraDevice], owners: Mapping[str, object]
) -> Iterator[str]:
    newest = max(each.spec.pool.generation for each in slices)
    current = [each for each in slices if each.spec.pool.generation == newest]
    wanted = max(each.spec.pool.resource_slice_count for each in current)
    if len(current) != wanted:
        yield f"incomplete: {len(current)} of {wanted} slices of generation {newest}, so the scheduler skips the pool"
    published = {device.name for device in devices}
    for name in sorted(set(owners) - published):
        yield f"{name} is allocated and not published: the scheduler can give its room to another claim"


def _gpu(
    pci: str,
    devices: Sequence[DraDevice],
    owners: Mapping[str, tuple[tuple[ResourceClaim, bool], ...]],
    counters: Mapping[str, Counts],
) -> DraGpuView:
    product = next((value for d in devices if (value := _text(d, "productName"))), "")
    allocated = [
        AllocatedView(
            device.name,
            _kind(device),
            device.start,
            device.size,
            f"{claim.metadata.namespace}/{claim.name}",
            tuple(f"{claim.metadata.namespace}/{name}" for name in claim.pods),
            admin,
        )
        for device in devices
        for claim, admin in owners.get(device.name, ())
    ]
    claimed = {d.name: d for d in devices if any(not admin for _, admin in owners.get(d.name, ()))}
    totals = counters.get(next((d.counter_set for d in devices if d.counter_set), ""), {})
    who = {each.device: each.claim for each in allocated if not each.admin}
    return DraGpuView(pci, product, tuple(allocated), tuple(_fits(devices, claimed, who, totals, product)))


def _fits(
    devices: Sequence[DraDevice], claimed: Mapping[str, DraDevice], who: Mapping[str, str], totals: Counts, product: str
) -> Iterator[FitView]:
    places = _places(devices, totals, product)
    used = taken(device.uses for device in claimed.values())
    for profile in dict.fromkeys(each.profile for each in places):
        here = [each for each in places if each.profile == profile]
        free = [p for p in here if not _owned(p, claimed) and not (p.device and p.device.taints)]
        count = _most([each for each in free if each.device is not None], used, totals)
        more = bool(count) and _most(free, used, totals) > count
        yield FitView(profile, count, "" if count else _reason(here, claimed, who, used, totals), more)


def _most(places: Sequence[_Place], used: Counts, totals: Counts) -> int:
    """Return how many of these places fit together. They have one size, so the lowest are best."""
    count, now = 0, dict(used)
    for place in places:
        if fits(place.uses, now, totals):
            count, now = count + 1, taken((now, place.uses))
    return count


def _places(devices: Sequence[DraDevice], totals: Counts, product: str) -> list[_Place]:
    """Return every device that the GPU can give: the published ones, and those of its table that are left out now."""
    published = {(d.profile, d.start): d for d in devices}
    places = [_Place(_kind(d), d.start, d.uses, d) for d in devices]
    family = product_family(product)
    if any(_kind(d) not in (WHOLE, d.profile) for d in devices):
        return places  # a GPU that serves VMs offers what its node's option says, and no table
    if family is None or not set(family_counters(family).totals) <= set(totals):
        return places
    if (None, 0) not in published:
        places.append(_Place(WHOLE, 0, family_counters(family).totals))
    for (profile_id, start), uses in family_counters(family).instances.items():
        name = family.by_id[profile_id].name
        if (name, start) not in published:
            places.append(_Place(name, start, uses))
    order = {profile.name: number for number, profile in enumerate(family.profiles)}
    return sorted(places, key=lambda each: (order.get(each.profile, -1), each.start))


def _reason(
    places: Sequence[_Place], claimed: Mapping[str, DraDevice], who: Mapping[str, str], used: Counts, totals: Counts
) -> str:
    """Return why no device of a profile is free: by the place that the fewest claims block."""
    open_places = [place for place in places if fits(place.uses, used, totals) and not _owned(place, claimed)]
    taints = sorted({t.key for place in open_places if place.device is not None for t in place.device.taints})
    if taints:
        return f"it is tainted with {', '.join(taints)}"
    if open_places:
        return NOT_PUBLISHED
    fewest = _fewest_blockers(places, claimed, totals)
    if not fewest:
        return NOT_PUBLISHED
    names = sorted({f"claim {who[name]}" for name in fewest})
    return f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} room that it needs"


def _fewest_blockers(places: Sequence[_Place], claimed: Mapping[str, DraDevice], totals: Counts) -> tuple[str, ...]:
    """Return the fewest claimed devices without which a place would be free.

    A GPU has at most seven instances. vGPUs are more and alike: one of them, or all.
    """
    sizes = range(1, len(claimed) + 1) if len(claimed) <= _MOST_INSTANCES else (1, len(claimed))
    for size in sizes:
        for group in combinations(claimed, size):
            left = {name: device for name, device in claimed.items() if name not in group}
            used = taken(device.uses for device in left.values())
            if any(fits(place.uses, used, totals) and not _owned(place, left) for place in places):
                return group
    return ()


def _kind(device: DraDevice) -> str:
    """Return what a device is, for people."""
    whole = WHOLE_FOR_VM if _text(device, "type") == "vfio" else WHOLE
    return device.vgpu or device.profile or whole


def _owned(place: _Place, claimed: Mapping[str, DraDevice]) -> bool:
    return place.device is not None and place.device.name in claimed


def _text(device: DraDevice, name: str) -> str:
    value = device.attributes.get(name)
    return (value.string_value or "") if value is not None else ""
