"""The published devices of one node, and the cost of what a pod would get there.

The scheduler takes the first devices, in the order of publication, that fit. The cost is that of these devices by the
score, so a low cost means that much room is left for later requests.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import zip_longest

import msgspec

from aliquot.core.planner.placement_table import PlacementTable, compiled_table
from aliquot.kubernetes.client.pods import Toleration
from aliquot.kubernetes.dra.extender.demand import Demand, EqualAttribute, NeededDevices
from aliquot.kubernetes.dra.extender.selectors import FieldCondition
from aliquot.kubernetes.dra.model.attributes import product_family
from aliquot.kubernetes.dra.model.counters import fits, taken
from aliquot.kubernetes.dra.model.device import DraDevice
from aliquot.kubernetes.dra.model.objects import DeviceAttribute, DeviceTaint, ResourceSlice
from aliquot.kubernetes.dra.model.ranking import SCORES, GpuRoom, ScoreName
from aliquot.kubernetes.dra.model.slices import read_publication

Cost = tuple[int, ...]
"""How much a placement takes from later requests. The lowest is best."""
_MOST_STEPS = 2000
"""Devices that are tried for one pod on one node. The scheduler would go on, but an answer must not be late."""
_MOST_COSTS = 64
"""Costs that a node keeps: many pods of a cluster need the same."""
_MOST_SLICES = 64
"""Memory slices of a GPU. A device beyond has no place: any driver writes its attributes."""
_Counts = dict[str, int]


class PlacedDevice(msgspec.Struct, frozen=True):
    """A device with its driver."""

    driver: str
    device: DraDevice

    @property
    def counter_set(self) -> tuple[str, str]:
        return self.driver, self.device.counter_set

    @property
    def gpu(self) -> tuple[str, str]:
        return self.driver, self.device.pci


class PublishedNode:
    """The published devices of a node, and those of them that are allocated. It never changes."""

    def __init__(self, slices: Iterable[ResourceSlice], allocated: Collection[tuple[str, str]]) -> None:
        """Read the slices of a node. ``allocated`` are drivers and names of devices."""
        by_driver: dict[str, list[ResourceSlice]] = {}
        for part in slices:
            by_driver.setdefault(part.spec.driver, []).append(part)
        self._totals: dict[tuple[str, str], _Counts] = {}
        devices: list[PlacedDevice] = []
        for driver in sorted(by_driver):
            found = read_publication(by_driver[driver])
            devices += [PlacedDevice(driver, _bounded(device)) for device in found.devices]
            self._totals |= {(driver, each.name): each.counters for each in found.counter_sets}
        self._tables = {each.gpu: _table(each.device) for each in devices}
        self._used: dict[tuple[str, str], _Counts] = {}
        self._masks: dict[tuple[str, str], int] = {}
        for each in devices:
            if (each.driver, each.device.name) in allocated:
                self._used[each.counter_set] = taken((self._used.get(each.counter_set, {}), each.device.uses))
                self._masks[each.gpu] = self._masks.get(each.gpu, 0) | each.device.mask
        left = (each for each in devices if (each.driver, each.device.name) not in allocated)
        self.free = tuple(each for each in left if self._fits(each, self._used.get(each.counter_set, {})))
        """The devices of which each alone can be allocated now, in the order in which the scheduler tries them."""
        self._costs: dict[tuple[Demand, ScoreName], Cost | None] = {}

    def cost(self, demand: Demand, score: ScoreName) -> Cost | None:
        """Return the cost of what the pod would get. None if it does not fit."""
        key = (demand, score)
        if key not in self._costs:
            if len(self._costs) >= _MOST_COSTS:
                self._costs.clear()
            self._costs[key] = self._cost(demand, score)
        return self._costs[key]

    def _cost(self, demand: Demand, score: ScoreName) -> Cost | None:
        chosen = _Search(self, demand).run()
        if chosen is None:
            return None
        masks = dict(self._masks)
        costs: list[Cost] = []
        for each in chosen.devices:
            room = GpuRoom(self._tables[each.gpu], masks.get(each.gpu, 0))
            costs.append(SCORES[score](room, each.device))
            masks[each.gpu] = room.mask | each.device.mask
        total = tuple(sum(column) for column in zip_longest(*costs, fillvalue=0))
        cold = sum(not each.device.warm for each in chosen.devices)
        return (chosen.alternatives, *total, cold)

    def _fits(self, each: PlacedDevice, used: _Counts) -> bool:
        return not each.device.uses or fits(each.device.uses, used, self._totals.get(each.counter_set, {}))

    def fits(self, each: PlacedDevice, chosen: Sequence[PlacedDevice]) -> bool:
        """Report whether a free device can be allocated after these."""
        others = [other.device.uses for other in chosen if other.counter_set == each.counter_set]
        return not others or self._fits(each, taken((self._used.get(each.counter_set, {}), *others)))


class _Chosen(msgspec.Struct, frozen=True):
    devices: tuple[PlacedDevice, ...]
    alternatives: int
    """How far the requests are from their first alternatives."""


class _Search:
    """The search for all devices of a pod. As the scheduler's, it ends at the first solution."""

    def __init__(self, node: PublishedNode, demand: Demand) -> None:
        self._node, self._demand = node, demand
        self._steps = 0
        self._chosen: list[PlacedDevice] = []
        self._owners: list[int] = []
        self._alternatives: list[int] = []

    def run(self) -> _Chosen | None:
        """Return the devices, in the order of requests. None if they do not fit, or were not found in time."""
        return _Chosen(tuple(self._chosen), sum(self._alternatives)) if self._request(0) else None

    def _request(self, number: int) -> bool:
        """Choose devices for this request and all later ones."""
        if number == len(self._demand.requests):
            return True
        for position, needed in enumerate(self._demand.requests[number].alternatives):
            self._alternatives.append(position)
            if self._devices(number, needed, needed.count, 0):
                return True
            self._alternatives.pop()
        return False

    def _devices(self, number: int, needed: NeededDevices, missing: int, start: int) -> bool:
        if not missing:
            return self._request(number + 1)
        for position in range(start, len(self._node.free)):
            each = self._node.free[position]
            self._steps += 1
            if self._steps > _MOST_STEPS:
                return False
            if not self._possible(number, needed, each):
                continue
            self._chosen.append(each)
            self._owners.append(number)
            if self._devices(number, needed, missing - 1, position + 1):
                return True
            self._chosen.pop()
            self._owners.pop()
        return False

    def _possible(self, number: int, needed: NeededDevices, each: PlacedDevice) -> bool:
        return (
            matches(needed.conditions, each)
            and tolerated(each.device.taints, needed.tolerations)
            and not any(each is other for other in self._chosen)
            and self._node.fits(each, self._chosen)
            and all(self._equal(constraint, number, each) for constraint in self._demand.constraints)
        )

    def _equal(self, constraint: EqualAttribute, number: int, each: PlacedDevice) -> bool:
        if number not in constraint.requests:
            return True
        value = _value(each, constraint.attribute)
        others = (
            other for other, owner in zip(self._chosen, self._owners, strict=True) if owner in constraint.requests
        )
        return value is not None and all(_value(other, constraint.attribute) == value for other in others)


def matches(conditions: Iterable[FieldCondition], each: PlacedDevice) -> bool:
    """Report whether all conditions hold for a device."""
    return all(condition.holds(each.driver, each.device.attributes) for condition in conditions)


def tolerated(taints: Iterable[DeviceTaint], tolerations: Sequence[Toleration]) -> bool:
    """Report whether a request gets a device with these taints."""
    return all(
        taint.effect not in ("NoSchedule", "NoExecute") or any(_tolerates(each, taint) for each in tolerations)
        for taint in taints
    )


def _tolerates(toleration: Toleration, taint: DeviceTaint) -> bool:
    if toleration.effect not in ("", taint.effect) or toleration.key not in ("", taint.key):
        return False
    return toleration.operator == "Exists" or (toleration.key == taint.key and toleration.value == taint.value)


def _value(each: PlacedDevice, attribute: str) -> DeviceAttribute | None:
    """Return an attribute by its full name. That of the driver's own may lack the domain in the slice."""
    domain, _, name = attribute.rpartition("/")
    found = each.device.attributes.get(attribute)
    return each.device.attributes.get(name) if found is None and domain == each.driver else found


def _bounded(device: DraDevice) -> DraDevice:
    if device.start >= 0 and device.size >= 0 and device.start + device.size <= _MOST_SLICES:
        return device
    return msgspec.structs.replace(device, start=0, size=0)


def _table(device: DraDevice) -> PlacementTable | None:
    product = device.attributes.get("productName", DeviceAttribute()).string_value or ""
    family = product_family(product) if device.counter_set else None
    return compiled_table(family) if family is not None else None
