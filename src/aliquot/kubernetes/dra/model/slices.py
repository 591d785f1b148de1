"""Resource slices of a node from its publication, and back.

The allocator goes through pools by name, slices by object name, and devices as listed. Object names begin with a number
of fixed width. Slices with counters come first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache

import msgspec

from aliquot.kubernetes.client.object_base import ObjectMeta
from aliquot.kubernetes.dra.model.device import (
    PCI_BUS_ID,
    PLACEMENT_SIZE,
    PLACEMENT_START,
    VGPU_TYPE,
    CounterSet,
    DraDevice,
)
from aliquot.kubernetes.dra.model.layout import MOST_COUNTER_SETS, SliceLayout
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.objects import (
    CounterConsumption,
    DeviceAttribute,
    QuantityValue,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    SharedCounterSet,
    SliceDevice,
)
from aliquot.kubernetes.dra.model.publication import Publication
from aliquot.kubernetes.gpu.quantity import Quantity, read

_LONGEST_NAME = 253


class _Part(msgspec.Struct, frozen=True):
    """The content of a slice."""

    devices: tuple[DraDevice, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()


def build_slices(
    publication: Publication,
    naming: DriverNaming,
    node: str,
    *,
    layout: SliceLayout | None = None,
    generation: int = 1,
) -> tuple[ResourceSlice, ...]:
    """Return the slices of a node, in the order in which the allocator reads them.

    GPUs without a device count too, so that the slices stay the same while devices come and go.
    """
    division = layout or SliceLayout()
    known = {*publication.gpus, *(d.pci for d in publication.devices), *(each.pci for each in publication.counter_sets)}
    built: list[ResourceSlice] = []
    pools = [(pci,) for pci in sorted(known)] if division.pool_per_gpu else [tuple(sorted(known))]
    for members in pools:
        name = naming.gpu_pool(node, members[0]) if division.pool_per_gpu else naming.pool(node)
        parts = list(_parts(publication, division, members))
        pool = ResourcePool(name, generation, len(parts))
        built += [_slice(part, number, pool, naming, node) for number, part in enumerate(parts)]
    return tuple(built)


def read_publication(slices: Iterable[ResourceSlice]) -> Publication:
    """Return what slices of this driver publish. Only those of a pool's highest generation count."""
    found = list(slices)
    newest: dict[str, int] = {}
    for each in found:
        pool = each.spec.pool
        newest[pool.name] = max(newest.get(pool.name, 0), pool.generation)
    current = [each for each in found if each.spec.pool.generation == newest[each.spec.pool.name]]
    current.sort(key=lambda each: (each.spec.pool.name, each.name))
    devices = tuple(read_device(device) for each in current for device in each.spec.devices)
    addresses = {device.counter_set: device.pci for device in devices}
    sets = tuple(
        CounterSet(one.name, addresses.get(one.name, ""), {name: _count(value) for name, value in one.counters.items()})
        for each in current
        for one in each.spec.shared_counters
    )
    return Publication(devices, sets, tuple(sorted({device.pci for device in devices})))


def _parts(publication: Publication, layout: SliceLayout, members: tuple[str, ...]) -> Iterator[_Part]:
    groups = layout.groups(members)
    sets = [each for each in publication.counter_sets if each.pci in members]
    if not layout.combined:
        for first in range(0, len(sets), MOST_COUNTER_SETS):
            yield _Part(counter_sets=tuple(sets[first : first + MOST_COUNTER_SETS]))
    for group in groups:
        devices = tuple(device for device in publication.devices if device.pci in group)
        yield _Part(devices, tuple(each for each in sets if each.pci in group) if layout.combined else ())


def _slice(part: _Part, number: int, pool: ResourcePool, naming: DriverNaming, node: str) -> ResourceSlice:
    spec = ResourceSliceSpec(
        naming.driver,
        pool,
        node,
        tuple(_device(device) for device in part.devices),
        tuple(SharedCounterSet(each.name, _quantities(each.counters)) for each in part.counter_sets),
    )
    return ResourceSlice(metadata=ObjectMeta(name=slice_name(number, naming.driver, pool.name)), spec=spec)


def slice_name(number: int, driver: str, pool: str) -> str:
    """Return the name of the slice object, unique in the cluster."""
    name = f"{number:02x}-{driver}-{pool}"
    if len(name) <= _LONGEST_NAME:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    return f"{name[: _LONGEST_NAME - 13].rstrip('-.')}-{digest}"


def _device(device: DraDevice) -> SliceDevice:
    takes = (CounterConsumption(device.counter_set, _quantities(device.uses)),) if device.uses else ()
    capacity = {name: quantity(name, count) for name, count in device.capacity.items()}
    return SliceDevice(device.name, device.attributes, capacity, takes, device.taints)


@lru_cache(maxsize=1024)
def quantity(name: str, count: int) -> QuantityValue:
    """Return a capacity as a quantity. Memory is in the largest binary unit that is exact, as the API server has it."""
    return QuantityValue(str(Quantity(Fraction(count), binary=name == "memory")))


def _quantities(counts: dict[str, int]) -> dict[str, QuantityValue]:
    return {name: QuantityValue(str(count)) for name, count in counts.items()}


def read_device(device: SliceDevice) -> DraDevice:
    """Return a device as its slice describes it."""
    takes = next(iter(device.consumes_counters), None)
    profile = device.attributes.get("profile", DeviceAttribute()).string_value
    return DraDevice(
        device.name,
        _text(device, "uuid") or _text(device, "parentUUID"),
        _text(device, PCI_BUS_ID),
        profile,
        _profile_id(device.name) if profile is not None else -1,
        _number(device, PLACEMENT_START),
        _number(device, PLACEMENT_SIZE),
        device.attributes,
        {name: _count(value) for name, value in device.capacity.items()},
        takes.counter_set if takes is not None else "",
        {name: _count(value) for name, value in takes.counters.items()} if takes is not None else {},
        device.taints,
        _text(device, VGPU_TYPE),
    )


def _text(device: SliceDevice, name: str) -> str:
    return device.attributes.get(name, DeviceAttribute()).string_value or ""


def _number(device: SliceDevice, name: str) -> int:
    return device.attributes.get(name, DeviceAttribute()).int_value or 0


def _profile_id(name: str) -> int:
    """Return the profile id in the name of a device: 19 of ``gpu-0-mig-1g10gb-19-0``. -1 if there is none."""
    word = name.rsplit("-", 2)[-2:][0]
    return int(word) if word.isdecimal() and word.isascii() else -1


def _count(value: QuantityValue) -> int:
    found = read(value.value)
    return int(found.value) if found is not None else 0
