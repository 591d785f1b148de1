"""Kubernetes objects as narrow frozen structs with only the fields that Aliquot reads.

Skipping the other fields keeps the agent small: a node of 7.5 KB becomes a few hundred bytes. Timestamps stay RFC 3339
text, and quantities stay Kubernetes text (``"2"``, ``"1936Mi"``). An absent or null field has its default value.
Sources: the Kubernetes API reference (v1.30 to v1.36); ``nvidia.com/v1`` of the GPU Operator.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from aliquot.kubernetes.client.cluster_policy import ClusterPolicy
from aliquot.kubernetes.client.object_base import (
    ApiStruct,
    Condition,
    KubeObject,
    ObjectMeta,
    OwnerReference,
    ResourceType,
)
from aliquot.kubernetes.client.pods import (
    ConfigMapSource,
    ContainerResources,
    ContainerStatus,
    EnvVar,
    HostPath,
    Pod,
    PodContainer,
    PodSpec,
    PodStatus,
    ResourceClaimUse,
    Toleration,
    Volume,
)

__all__ = [
    "ApiStruct",
    "ClusterPolicy",
    "Condition",
    "ConfigMap",
    "ConfigMapSource",
    "ContainerResources",
    "ContainerStatus",
    "EnvVar",
    "Event",
    "HostPath",
    "KubeObject",
    "Lease",
    "LeaseSpec",
    "Node",
    "NodeAddress",
    "NodeInfo",
    "NodeSpec",
    "NodeStatus",
    "ObjectMeta",
    "ObjectReference",
    "OwnerReference",
    "Pod",
    "PodContainer",
    "PodSpec",
    "PodStatus",
    "ResourceClaimUse",
    "ResourceType",
    "Taint",
    "Toleration",
    "Volume",
]


class Taint(ApiStruct, frozen=True):
    key: str
    effect: str = ""
    value: str = ""


class NodeSpec(ApiStruct, frozen=True):
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    provider_id: str = msgspec.field(name="providerID", default="")


class NodeInfo(ApiStruct, frozen=True):
    kernel_version: str = ""
    os_image: str = ""
    kubelet_version: str = ""
    container_runtime_version: str = ""
    boot_id: str = msgspec.field(name="bootID", default="")


class NodeAddress(ApiStruct, frozen=True):
    type: str = ""
    address: str = ""


class NodeStatus(ApiStruct, frozen=True):
    """Status of a node."""

    capacity: dict[str, str] = msgspec.field(default_factory=dict)
    """Quantities by resource name."""
    allocatable: dict[str, str] = msgspec.field(default_factory=dict)
    """Quantities by resource name."""
    conditions: tuple[Condition, ...] = ()
    node_info: NodeInfo = NodeInfo()
    addresses: tuple[NodeAddress, ...] = ()


class Node(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "nodes", "Node", namespaced=False)

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class ConfigMap(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "configmaps", "ConfigMap")

    data: dict[str, str] = msgspec.field(default_factory=dict)


class LeaseSpec(ApiStruct, frozen=True):
    holder_identity: str = ""
    lease_duration_seconds: int = 0
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int = 0


class Lease(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")

    spec: LeaseSpec = LeaseSpec()


class ObjectReference(ApiStruct, frozen=True):
    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""


class Event(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "events", "Event")

    involved_object: ObjectReference = ObjectReference()
    type: str = ""
    reason: str = ""
    message: str = ""
    count: int = 0
    last_timestamp: str | None = None
