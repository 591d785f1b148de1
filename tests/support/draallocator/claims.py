"""Claims: what they hold, and those that the scheduler makes for extended resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from support.standin.quantity import amount

JSON = dict[str, Any]
IMPLICIT = "deviceclass.resource.kubernetes.io/"
"""The extended resource of every device class is this and the name of the class."""


def allocated_devices(claims: Iterable[JSON]) -> frozenset[tuple[str, str, str]]:
    """Return the devices (driver, pool, name) that claims hold. Access by administrators holds nothing."""
    results = (row for claim in claims for row in _results(claim))
    return frozenset((row["driver"], row["pool"], row["device"]) for row in results if not row.get("adminAccess"))


def _results(claim: JSON) -> list[JSON]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    rows: list[JSON] = (allocation.get("devices") or {}).get("results") or []
    return rows


def extended_claim(pod: JSON, classes: Iterable[JSON], node: JSON) -> JSON | None:
    """Return the claim that a pod's extended resources become on a node, or None if device classes back none of them.

    A resource that a device plugin advertises on the node stays with that plugin. A pod's short-lived init containers
    are not supported.
    """
    if pod["spec"].get("initContainers"):
        raise NotImplementedError("init containers")
    offered = (node.get("status") or {}).get("allocatable") or {}
    by_resource = _by_resource(classes)
    requests = []
    for position, container in enumerate(pod["spec"]["containers"]):
        wanted = _wanted(container)
        for index, name in enumerate(sorted(wanted)):
            if name in by_resource and wanted[name] and not amount(str(offered.get(name, 0))):
                exactly = {
                    "deviceClassName": by_resource[name],
                    "allocationMode": "ExactCount",
                    "count": wanted[name],
                }
                requests.append({"name": f"container-{position}-request-{index}", "exactly": exactly})
    requests.sort(key=lambda row: str(row["name"]))
    return {"spec": {"devices": {"requests": requests}}} if requests else None


def _wanted(container: JSON) -> Mapping[str, int]:
    """Return what a container requests: limits are requests where these are missing."""
    resources = container.get("resources") or {}
    found = {**(resources.get("limits") or {}), **(resources.get("requests") or {})}
    return {name: int(amount(str(value)) or 0) for name, value in found.items()}


def _by_resource(classes: Iterable[JSON]) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in classes:
        name = one["metadata"]["name"]
        found[IMPLICIT + name] = name
        resource = one["spec"].get("extendedResourceName")
        if resource in found:
            raise NotImplementedError(f"two device classes for {resource}")
        if resource:
            found[resource] = name
    return found
