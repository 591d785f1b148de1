"""Validation of resource slices before they are written.

The API server refuses a wrong slice. The scheduler is stricter and silent: it skips a pool that is incomplete or
invalid. Both sets of rules are checked here, over all slices of the node.

Sources: kubernetes/kubernetes pkg/apis/resource/validation/validation.go, and dynamic-resource-allocation
structured/internal/incubating/pools_incubating.go (both 1.36.2).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import msgspec

from aliquot.errors import AliquotError
from aliquot.kubernetes.dra.model import names_validation as names
from aliquot.kubernetes.dra.model.layout import MOST_COUNTER_SETS, MOST_COUNTERS, MOST_DEVICE_COUNTERS, MOST_DEVICES
from aliquot.kubernetes.dra.model.objects import QuantityValue, ResourceSlice, SliceDevice
from aliquot.kubernetes.gpu.quantity import read

MOST_PLAIN_DEVICES = 128
MOST_ATTRIBUTES = 32
"""Attributes and capacities of a device."""
MOST_TAINTS = 16
MOST_CONSUMPTIONS = 2

FaultCode = Literal[
    "ATTRIBUTE",
    "COUNTERS_WITH_DEVICES",
    "DUPLICATE_COUNTER_SET",
    "DUPLICATE_DEVICE",
    "DUPLICATE_SLICE",
    "EMPTY_COUNTERS",
    "GENERATION",
    "NAME",
    "NO_SUCH_COUNTER",
    "NODE",
    "POOL_NAME",
    "QUANTITY",
    "SLICE_COUNT",
    "TAINT",
    "TOO_MANY_ATTRIBUTES",
    "TOO_MANY_CONSUMPTIONS",
    "TOO_MANY_COUNTERS",
    "TOO_MANY_COUNTER_SETS",
    "TOO_MANY_DEVICES",
    "TOO_MANY_TAINTS",
]


class SliceFault(msgspec.Struct, frozen=True):
    """A fault of a slice or a pool."""

    code: FaultCode
    where: str
    """The slice or pool, and the device or counter set."""
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message} ({self.code})"


class InvalidSlicesError(AliquotError):
    """The resource slices of a node are invalid, so they were not written: the scheduler would skip the pool.

    This is a defect of Aliquot or of the driver's tables, not of a claim.
    """

    code = "DRA_SLICES"


def validate_slices(slices: Sequence[ResourceSlice], node: str, *, combined: bool = False) -> None:
    """Check all slices of a node and driver. Raises InvalidSlicesError with all faults."""
    faults = find_faults(slices, node, combined=combined)
    if faults:
        raise InvalidSlicesError(
            f"the resource slices of node {node} are invalid: {faults[0]}",
            details=tuple(str(fault) for fault in faults),
            next_step="aliquot doctor",
        )


def find_faults(slices: Sequence[ResourceSlice], node: str, *, combined: bool = False) -> tuple[SliceFault, ...]:
    """Return all faults. ``combined`` is the shape of Kubernetes 1.34."""
    found = [*_duplicates("DUPLICATE_SLICE", f"node {node}", [each.name for each in slices])]
    for each in slices:
        found += _slice_faults(each, node, combined)
    pools: dict[str, list[ResourceSlice]] = {}
    for each in slices:
        pools.setdefault(each.spec.pool.name, []).append(each)
    for name, members in pools.items():
        found += _pool_faults(f"pool {name}", members, combined)
    return tuple(found)


def _slice_faults(each: ResourceSlice, node: str, combined: bool) -> Iterator[SliceFault]:
    where, spec = f"slice {each.name}", each.spec
    if not names.is_subdomain(each.name):
        yield SliceFault("NAME", where, "the name is not a DNS subdomain")
    if not names.is_subdomain(spec.driver, 63):
        yield SliceFault("NAME", where, f"driver {spec.driver!r} is not a DNS subdomain of at most 63 characters")
    if spec.node_name != node or not names.is_subdomain(node):
        yield SliceFault("NODE", where, f"node {spec.node_name!r} is not {node!r}, or not a valid name")
    if not names.is_pool_name(spec.pool.name):
        yield SliceFault("POOL_NAME", where, f"pool {spec.pool.name!r} is not a valid name")
    if spec.pool.name == node:
        yield SliceFault("POOL_NAME", where, "the pool is named like the node, as pools of other drivers are")
    if spec.shared_counters and spec.devices and not combined:
        yield SliceFault("COUNTERS_WITH_DEVICES", where, "a slice has either devices or counters")
    yield from _counter_set_faults(where, each, combined)
    advanced = any(device.consumes_counters or device.taints for device in spec.devices)
    yield from _too_many("TOO_MANY_DEVICES", where, len(spec.devices), MOST_DEVICES if advanced else MOST_PLAIN_DEVICES)
    for device in spec.devices:
        yield from _device_faults(f"{where}, device {device.name}", device)


def _counter_set_faults(where: str, each: ResourceSlice, combined: bool) -> Iterator[SliceFault]:
    sets = each.spec.shared_counters
    yield from _too_many("TOO_MANY_COUNTER_SETS", where, len(sets), MOST_COUNTER_SETS)
    if combined:
        yield from _too_many("TOO_MANY_COUNTERS", where, sum(len(one.counters) for one in sets), MOST_COUNTERS)
        uses = [len(one.counters) for device in each.spec.devices for one in device.consumes_counters]
        yield from _too_many("TOO_MANY_COUNTERS", f"{where}, devices", sum(uses), MOST_DEVICE_COUNTERS)
    for one in sets:
        yield from _counters_faults(f"{where}, counter set {one.name}", one.name, one.counters)


def _counters_faults(where: str, set_name: str, counters: Mapping[str, QuantityValue]) -> Iterator[SliceFault]:
    if not names.is_label(set_name):
        yield SliceFault("NAME", where, f"counter set {set_name!r} is not a DNS label")
    if not counters:
        yield SliceFault("EMPTY_COUNTERS", where, "counters are missing")
    yield from _too_many("TOO_MANY_COUNTERS", where, len(counters), MOST_COUNTERS)
    for name, value in counters.items():
        if not names.is_label(name):
            yield SliceFault("NAME", where, f"counter {name!r} is not a DNS label")
        yield from _quantity_faults(where, name, value)


def _device_faults(where: str, device: SliceDevice) -> Iterator[SliceFault]:
    if not names.is_label(device.name):
        yield SliceFault("NAME", where, "the name is not a DNS label")
    yield from _too_many("TOO_MANY_ATTRIBUTES", where, len(device.attributes) + len(device.capacity), MOST_ATTRIBUTES)
    for name in (*device.attributes, *device.capacity):
        if not names.is_qualified_name(name):
            yield SliceFault("NAME", where, f"{name!r} is not the name of an attribute")
    for name, attribute in device.attributes.items():
        fault = names.attribute_fault(attribute)
        if fault:
            yield SliceFault("ATTRIBUTE", where, f"attribute {name}: {fault}")
    for name, value in device.capacity.items():
        yield from _quantity_faults(where, name, value)
    yield from _too_many("TOO_MANY_TAINTS", where, len(device.taints), MOST_TAINTS)
    for taint in device.taints:
        fault = names.taint_fault(taint)
        if fault:
            yield SliceFault("TAINT", where, fault)
    yield from _too_many("TOO_MANY_CONSUMPTIONS", where, len(device.consumes_counters), MOST_CONSUMPTIONS)
    yield from _duplicates("DUPLICATE_COUNTER_SET", where, [one.counter_set for one in device.consumes_counters])
    for one in device.consumes_counters:
        yield from _counters_faults(where, one.counter_set, one.counters)


def _pool_faults(where: str, members: Sequence[ResourceSlice], combined: bool) -> Iterator[SliceFault]:
    drivers = {each.spec.driver for each in members}
    if len(drivers) > 1:
        yield SliceFault("POOL_NAME", where, f"drivers {', '.join(sorted(drivers))} share the pool")
    generations = sorted({each.spec.pool.generation for each in members})
    if generations[0] < 0 or len(generations) > 1:
        yield SliceFault("GENERATION", where, f"slices have the generations {generations}, so some of them are ignored")
    counts = sorted({each.spec.pool.resource_slice_count for each in members})
    if counts != [len(members)]:
        yield SliceFault("SLICE_COUNT", where, f"{len(members)} slices state a number of {counts}")
    devices = [device for each in members for device in each.spec.devices]
    yield from _duplicates("DUPLICATE_DEVICE", where, [device.name for device in devices])
    sets = [one for each in members for one in each.spec.shared_counters]
    yield from _duplicates("DUPLICATE_COUNTER_SET", where, [one.name for one in sets])
    scopes = [[each] for each in members] if combined else [members]
    for scope in scopes:
        yield from _reference_faults(where, scope)


def _reference_faults(where: str, members: Sequence[ResourceSlice]) -> Iterator[SliceFault]:
    known = {one.name: one.counters.keys() for each in members for one in each.spec.shared_counters}
    for device in (device for each in members for device in each.spec.devices):
        for one in device.consumes_counters:
            missing = sorted(one.counters.keys() - known.get(one.counter_set, ()))
            if missing:
                text = f"counter set {one.counter_set!r} has no {', '.join(missing)}"
                yield SliceFault("NO_SUCH_COUNTER", f"{where}, device {device.name}", text)


def _quantity_faults(where: str, name: str, value: QuantityValue) -> Iterator[SliceFault]:
    found = read(value.value)
    if found is None or found.value < 0:
        yield SliceFault("QUANTITY", where, f"{name}: {value.value!r} is not a quantity of at least zero")


def _too_many(code: FaultCode, where: str, count: int, most: int) -> Iterator[SliceFault]:
    if count > most:
        yield SliceFault(code, where, f"{count} where at most {most} are possible")


def _duplicates(code: FaultCode, where: str, found: Sequence[str]) -> Iterator[SliceFault]:
    for name, count in Counter(found).items():
        if count > 1:
            yield SliceFault(code, where, f"{name} is there {count} times")
