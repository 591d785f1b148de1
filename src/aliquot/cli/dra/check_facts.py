"""Facts about a cluster, as ``aliquot dra check`` reads them. Pure."""

from __future__ import annotations

from functools import cached_property

import msgspec

from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.client.server_version import ServerVersion
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.naming import DriverNaming
from aliquot.kubernetes.dra.model.objects import DeviceClass, ResourceSlice

AGENT_LABELS = {"app.kubernetes.io/name": "aliquot", "app.kubernetes.io/component": "claims"}
"""The labels of claim agent pods."""
PARTITIONABLE, EXTENDED, TAINTS = "DRAPartitionableDevices", "DRAExtendedResource", "DRADeviceTaints"
PARTITIONABLE_STEP = f"set --feature-gates={PARTITIONABLE}=true on kube-apiserver and kube-scheduler"
EXTENDED_STEP = f"set --feature-gates={EXTENDED}=true on kube-apiserver, kube-scheduler and kubelet"


APPLIED_ANNOTATION = "kubectl.kubernetes.io/last-applied-configuration"
"""The object as ``kubectl apply`` sent it."""


class _AppliedSpec(msgspec.Struct, frozen=True, rename="camel"):
    extended_resource_name: str = ""


class _Applied(msgspec.Struct, frozen=True):
    spec: _AppliedSpec = _AppliedSpec()


class DraFacts(msgspec.Struct, frozen=True, dict=True):
    """The objects of a cluster. None stands for a kind that could not be read."""

    naming: DriverNaming
    version: ServerVersion | None = None
    slices: tuple[ResourceSlice, ...] | None = ()
    claims: tuple[ResourceClaim, ...] | None = ()
    classes: tuple[DeviceClass, ...] | None = ()
    nodes: tuple[Node, ...] | None = ()
    agents: tuple[Pod, ...] | None = ()
    """Claim agents."""

    @property
    def release(self) -> tuple[int, int]:
        """The release of the API server. ``(0, 0)`` if it is unknown."""
        return self.version.release if self.version is not None else (0, 0)

    @cached_property
    def own(self) -> dict[str, tuple[ResourceSlice, ...]]:
        """The slices of claim agents, by node. Another driver of the same name has pools of other names."""
        found: dict[str, tuple[ResourceSlice, ...]] = {}
        for each in self.slices or ():
            if is_own(self.naming, each):
                found[each.spec.node_name] = (*found.get(each.spec.node_name, ()), each)
        return found


def is_own(naming: DriverNaming, each: ResourceSlice) -> bool:
    """Report whether a claim agent publishes a slice: by its driver, and by its pool."""
    spec = each.spec
    pool = naming.pool(spec.node_name)
    named = spec.pool.name == pool or spec.pool.name.startswith(f"{pool}-")
    return bool(spec.node_name) and spec.driver == naming.driver and named


def resource_was_dropped(each: DeviceClass) -> bool:
    """Report whether ``kubectl apply`` sent a resource name that the class does not have."""
    if each.spec.extended_resource_name:
        return False
    try:
        applied = msgspec.json.decode(each.metadata.annotations.get(APPLIED_ANNOTATION, "{}"), type=_Applied)
    except (msgspec.DecodeError, RecursionError):
        return False
    return bool(applied.spec.extended_resource_name)
