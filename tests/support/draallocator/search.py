"""The search for devices: claims, their requests, and the devices of a request one after the other, with back-tracking.

The first full solution wins. The devices of one request are tried in one order only, because another order of the same
devices is the same solution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import msgspec

from support.draallocator.matching import Constraint, selected, tolerated
from support.draallocator.pools import Device, Key, gather, on_node
from support.standin.cel import CelError

JSON = dict[str, Any]
MOST = 32
"""Results of a claim."""
_DeviceId = tuple[str, str, str]


class AllocationError(Exception):
    """The search cannot be done for these claims; the text is part of what the scheduler reports."""


class _TooManyError(Exception):
    """The claim has too few results left for its next request."""


class Published(msgspec.Struct, frozen=True):
    """Objects that the scheduler reads: slices, classes by name, and the devices of allocated claims."""

    slices: Sequence[JSON]
    classes: Mapping[str, JSON]
    allocated: frozenset[_DeviceId] = frozenset()


class _Wanted(msgspec.Struct, frozen=True, eq=False):
    """A request, or one of the alternatives of a ``firstAvailable``.

    Attributes:
        name: as in the results
        every: with ``allocationMode: All``, the devices that it needs; else None
    """

    claim: int
    name: str
    detail: JSON
    selectors: tuple[JSON, ...]
    count: int
    admin: bool
    every: tuple[Device, ...] | None = None


class _Chosen(msgspec.Struct, frozen=True, eq=False):
    wanted: _Wanted
    device: Device


def allocate(claims: Sequence[JSON], node: JSON, published: Published) -> list[list[JSON]] | None:
    """Return the results of each claim on a node (``request``, ``driver``, ``pool``, ``device``), or None if the
    devices do not suffice.

    Raises:
        AllocationError: a class is missing, an expression fails, "All" of an unusable pool, and the like
    """
    return _Search(claims, node, published).run()


class _Search:
    """An attempt for one pod on one node."""

    def __init__(self, claims: Sequence[JSON], node: JSON, published: Published) -> None:
        self.node, self.published = node, published
        self.pools = gather(published.slices, node)
        self.order = [device for pool in self.pools if not pool.fault for device in pool.devices]
        self.chosen: list[list[_Chosen]] = [[] for _ in claims]
        self.matches: dict[tuple[int, str, _DeviceId], bool] = {}
        self.consumed: dict[str, dict[Key, Decimal]] = {}
        self.available: dict[str, dict[Key, Decimal]] = {}
        self.requests = [self._requests(number, claim) for number, claim in enumerate(claims)]
        self.constraints = [
            [Constraint(row) for row in claim["spec"]["devices"].get("constraints") or []] for claim in claims
        ]

    def run(self) -> list[list[JSON]] | None:
        for wanted in self.requests:
            if sum(min(one.count for one in alternatives) for alternatives in wanted) > MOST:
                raise AllocationError(f"number of requested devices exceeds the claim limit of {MOST}")
        try:
            found = self._claim(0)
        except _TooManyError:
            raise AllocationError("allocation max size exceeded") from None
        if found:
            return [[_result(one) for one in rows] for rows in self.chosen]
        if any(pool.fault == "invalid" for pool in self.pools):
            raise AllocationError("invalid resource pools were encountered")
        return None

    def _requests(self, number: int, claim: JSON) -> list[list[_Wanted]]:
        """Return the alternatives of each request."""
        found = []
        for request in claim["spec"]["devices"]["requests"]:
            alternatives = request.get("firstAvailable") or []
            names = [f"{request['name']}/{one['name']}" for one in alternatives] or [request["name"]]
            details = alternatives or [request["exactly"]]
            found.append([self._wanted(number, name, one) for name, one in zip(names, details, strict=True)])
        return found

    def _wanted(self, claim: int, name: str, detail: JSON) -> _Wanted:
        if detail.get("capacity"):
            raise NotImplementedError("capacity of a request")
        class_name = detail["deviceClassName"]
        if class_name not in self.published.classes:
            raise AllocationError(f"device class {class_name} does not exist")
        selectors = (
            *(self.published.classes[class_name]["spec"].get("selectors") or []),
            *(detail.get("selectors") or []),
        )
        admin = bool(detail.get("adminAccess"))
        wanted = _Wanted(claim, name, detail, selectors, detail.get("count", 1), admin)
        if detail.get("allocationMode") != "All":
            return wanted
        for pool in self.pools:
            if pool.fault:
                why = "being updated" if pool.fault == "incomplete" else "invalid"
                raise AllocationError(
                    f"asks for all devices, but resource pool {pool.driver}/{pool.name} is currently {why}"
                )
        every = tuple(device for device in self.order if self._matches(wanted, device))
        return msgspec.structs.replace(wanted, count=len(every), every=every)

    def _matches(self, wanted: _Wanted, device: Device) -> bool:
        key = (wanted.claim, wanted.name, device.id)
        if key not in self.matches:
            try:
                fits = selected(device, wanted.selectors)
            except CelError as error:
                raise AllocationError(f"CEL runtime error: {error}") from error
            self.matches[key] = fits and (not device.node_local or on_node(device.published, self.node))
        return self.matches[key]

    def _claim(self, number: int) -> bool:
        """Allocate a claim and all after it."""
        if number == len(self.requests):
            return True
        try:
            return self._request(number, 0)
        except _TooManyError:
            if number == 0:
                raise
            return False

    def _request(self, claim: int, number: int) -> bool:
        """Allocate a request of a claim and everything after it."""
        if number == len(self.requests[claim]):
            return self._claim(claim + 1)
        alternatives = self.requests[claim][number]
        if "/" not in alternatives[0].name:
            return self._devices(alternatives[0], number, 0, 0)
        too_many = True
        for wanted in alternatives:
            try:
                if self._devices(wanted, number, 0, 0):
                    return True
            except _TooManyError:
                continue
            too_many = False
        if too_many:
            raise _TooManyError
        return False

    def _devices(self, wanted: _Wanted, number: int, have: int, start: int) -> bool:
        """Choose the rest of a request's devices, from position ``start`` of the order on, and everything after it."""
        if wanted.every is not None and not wanted.every:
            return False
        if have >= wanted.count:
            return self._request(wanted.claim, number + 1)
        if len(self.chosen[wanted.claim]) + wanted.count - have > MOST:
            raise _TooManyError
        if wanted.every is not None:
            device = wanted.every[have]
            return self._taken(wanted, device) and self._rest(wanted, number, have, 0)
        for position in range(start, len(self.order)):
            device = self.order[position]
            if self._in_use(wanted, device) or not self._matches(wanted, device):
                continue
            if self._taken(wanted, device) and self._rest(wanted, number, have, position + 1):
                return True
        return False

    def _rest(self, wanted: _Wanted, number: int, have: int, start: int) -> bool:
        """Allocate the rest after a device was taken, and give the device back if that fails."""
        try:
            if self._devices(wanted, number, have + 1, start):
                return True
        except _TooManyError:
            self._give_back(wanted)
            raise
        self._give_back(wanted)
        return False

    def _in_use(self, wanted: _Wanted, device: Device) -> bool:
        if wanted.admin:
            return any(one.device.id == device.id for one in self.chosen[wanted.claim])
        if device.id in self.published.allocated:
            return True
        return any(one.device.id == device.id for rows in self.chosen for one in rows)

    def _taken(self, wanted: _Wanted, device: Device) -> bool:
        """Take a device, or report that something forbids it.

        Release 1.36 does not give the counters back of a device that a taint or a constraint forbids (kubernetes
        #140436, mended in 1.37), so a claim may be refused that an empty GPU could satisfy.
        """
        if self._in_use(wanted, device) or not self._counted(device):
            return False
        if not tolerated(device, wanted.detail.get("tolerations") or []):
            return False
        constraints = self.constraints[wanted.claim]
        for position, constraint in enumerate(constraints):
            if constraint.add(wanted.name, device):
                continue
            if wanted.every is not None:
                why = "because a claim constraint would not be satisfied"
                raise AllocationError(f"cannot add device {'/'.join(device.id)} {why}")
            for before in constraints[:position]:
                before.remove(wanted.name)
            return False
        self.chosen[wanted.claim].append(_Chosen(wanted, device))
        return True

    def _give_back(self, wanted: _Wanted) -> None:
        device = self.chosen[wanted.claim].pop().device
        for constraint in self.constraints[wanted.claim]:
            constraint.remove(wanted.name)
        self._count(device, -1)

    def _counted(self, device: Device) -> bool:
        """Take a device's counters if they suffice. A counter below zero forbids every device of the pool.

        Release 1.36 asks them of administrators as well (kubernetes #140729).
        """
        if not device.uses:
            return True
        available = self._available(device)
        self._count(device, 1)
        consumed = self.consumed[device.pool]
        if all(consumed.get(key, 0) <= value for key, value in available.items()):
            return True
        self._count(device, -1)
        return False

    def _count(self, device: Device, sign: int) -> None:
        """Release 1.36 keeps counters by the name of the pool, so two drivers with the same name share them."""
        consumed = self.consumed.setdefault(device.pool, {})
        for key, value in device.uses:
            consumed[key] = consumed.get(key, Decimal(0)) + sign * value

    def _available(self, device: Device) -> dict[Key, Decimal]:
        """Return what the allocated devices of a pool leave.

        Release 1.36 forgets a device that is allocated and no longer published (kubernetes #140802).
        """
        if device.pool not in self.available:
            pool = next(pool for pool in self.pools if (pool.driver, pool.name) == (device.driver, device.pool))
            left = dict(pool.counters)
            for other in (*pool.devices, *pool.elsewhere):
                if other.id in self.published.allocated:
                    for key, value in other.uses:
                        left[key] -= value
            self.available[device.pool] = left
        return self.available[device.pool]


def _result(chosen: _Chosen) -> JSON:
    device = chosen.device
    row: JSON = {"request": chosen.wanted.name, "driver": device.driver, "pool": device.pool, "device": device.name}
    return {**row, "adminAccess": True} if chosen.wanted.admin else row
