"""Match devices with requests: selectors, tolerations, constraints."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from support.draallocator.pools import Device
from support.standin import cel, cel_amounts

JSON = dict[str, Any]
_SCHEDULING = ("NoSchedule", "NoExecute")
"""The effects that keep a device from being allocated."""


class _Domains(dict[str, JSON]):
    """Attributes or capacities by domain; a domain that the device does not have is empty."""

    def __missing__(self, _: str) -> JSON:
        return {}


def selected(device: Device, selectors: Sequence[JSON]) -> bool:
    """Report whether all selectors take a device.

    Raises:
        CelError: an expression has no value for this device
        CelSyntaxError: an expression that the evaluator does not know
    """
    for selector in selectors:
        value = cel.evaluate(selector["cel"]["expression"], {"device": _seen(device)})
        if not isinstance(value, bool):
            raise cel.CelError("the expression is not true or false")
        if not value:
            return False
    return True


@lru_cache(maxsize=10_000)
def _seen(device: Device) -> JSON:
    """Return what an expression sees of a device."""
    attributes, capacities = _Domains(), _Domains()
    for name, value in (device.published.get("attributes") or {}).items():
        domain, short = _qualified(name, device.driver)
        attributes.setdefault(domain, {})[short] = _attribute(value)
    for name, value in (device.published.get("capacity") or {}).items():
        domain, short = _qualified(name, device.driver)
        capacities.setdefault(domain, {})[short] = cel_amounts.quantity(str(value["value"]))
    return {
        "driver": device.driver,
        "allowMultipleAllocations": False,
        "attributes": attributes,
        "capacity": capacities,
    }


def _qualified(name: str, driver: str) -> tuple[str, str]:
    domain, slash, short = name.rpartition("/")
    return (domain, short) if slash else (driver, name)


def _attribute(value: JSON) -> Any:
    kind, content = next(iter(value.items()))
    if kind not in ("string", "int", "bool", "version"):
        raise NotImplementedError(f"attribute with {kind}")
    return cel_amounts.semver(content) if kind == "version" else content


def tolerated(device: Device, tolerations: Sequence[JSON]) -> bool:
    """Report whether a request takes the device in spite of its taints."""
    taints = [taint for taint in device.published.get("taints") or [] if taint["effect"] in _SCHEDULING]
    return all(any(_tolerates(one, taint) for one in tolerations) for taint in taints)


def _tolerates(toleration: JSON, taint: JSON) -> bool:
    if toleration.get("effect", "") not in ("", taint["effect"]):
        return False
    if toleration.get("key", "") not in ("", taint["key"]):
        return False
    exists = toleration.get("operator", "Equal") == "Exists"
    return exists or bool(toleration.get("value", "") == taint.get("value", ""))


class Constraint:
    """A constraint of a claim and the devices that it has taken so far."""

    def __init__(self, constraint: JSON) -> None:
        self.requests = frozenset(constraint.get("requests") or [])
        self.distinct = "distinctAttribute" in constraint
        self.name: str = constraint["distinctAttribute" if self.distinct else "matchAttribute"]
        self._count = 0
        self._common: JSON | None = None
        self._last: dict[str, JSON] = {}

    def _concerns(self, request: str) -> bool:
        return not self.requests or request in self.requests or request.partition("/")[0] in self.requests

    def add(self, request: str, device: Device) -> bool:
        """Take a device for a request, ``name`` or ``name/subrequest``, or report that it does not fit the others."""
        if not self._concerns(request):
            return True
        value = self._value(device)
        if value is None:
            return False
        if self._count and not self._fits(value):
            return False
        if not self._count:
            self._common = value
        # Release 1.36 keeps one value for each request, so a third device of the same request may repeat the first.
        self._last[request.partition("/")[0]] = value
        self._count += 1
        return True

    def remove(self, request: str) -> None:
        """Take back the last ``add``."""
        if self._concerns(request):
            self._count -= 1
            self._last.pop(request.partition("/")[0], None)

    def _fits(self, value: JSON) -> bool:
        return value not in self._last.values() if self.distinct else value == self._common

    def _value(self, device: Device) -> JSON | None:
        """Return the attribute, whose name may leave out the driver's domain."""
        attributes = device.published.get("attributes") or {}
        domain, _, short = self.name.partition("/")
        found: JSON | None = attributes.get(self.name)
        return attributes.get(short) if found is None and domain == device.driver else found
