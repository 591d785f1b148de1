"""Pods, claims and slices for the tests of the extender."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from aliquot.core.model.inventory import Inventory
from aliquot.kubernetes.client.codec import decode
from aliquot.kubernetes.dra.extender.demand import RequestedClaim
from aliquot.kubernetes.dra.extender.messages import ScheduledPod
from aliquot.kubernetes.dra.model.device_classes import device_classes
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.dra.model.publication import Publication
from aliquot.kubernetes.dra.model.slices import build_slices
from support import factory
from unit.kubernetes.dra.model.nodes import A100, NAMING, desired

JSON = dict[str, Any]
PROFILES = ("1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb")
CLASSES = device_classes(NAMING, PROFILES)


def raw_pod(limits: dict[str, str] | None = None, *, claims: Collection[JSON] = (), made: JSON | None = None) -> JSON:
    """Return a pod. ``made`` are the names of claims by the names that the pod has for them."""
    statuses = [{"name": name, "resourceClaimName": claim} for name, claim in (made or {}).items()]
    return {
        "metadata": {"name": "p", "namespace": "team"},
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits or {}}}], "resourceClaims": list(claims)},
        "status": {"resourceClaimStatuses": statuses},
    }


def pod(limits: dict[str, str] | None = None, **more: Any) -> ScheduledPod:
    return decode(msgspec.json.encode(raw_pod(limits, **more)), ScheduledPod)


def claim(
    *requests: JSON, held: Collection[str] = (), node: str = "n1", name: str = "c", **devices: Any
) -> RequestedClaim:
    """Return a claim. It is allocated if it holds devices."""
    results = [{"request": "r", "driver": NAMING.driver, "pool": NAMING.pool(node), "device": name} for name in held]
    status = {"allocation": {"devices": {"results": results}}} if held else {}
    body = {
        "metadata": {"name": name, "namespace": "team", "uid": name},
        "spec": {"devices": {"requests": list(requests), **devices}},
        "status": status,
    }
    return decode(msgspec.json.encode(body), RequestedClaim)


def exactly(profile: str, name: str = "r", **more: Any) -> JSON:
    return {"name": name, "exactly": {"deviceClassName": f"mig-{profile}.nvidia.com", **more}}


def published(
    node: str = "n1", inventory: Inventory | None = None, allocated: Collection[str] = ()
) -> tuple[ResourceSlice, ...]:
    found = desired(inventory or factory.inventory(A100, enabled=True), allocated)
    return build_slices(Publication(found.devices, found.counter_sets), NAMING, node)
