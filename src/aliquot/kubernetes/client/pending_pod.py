"""Unscheduled pods, with only the fields that decide which nodes they can run on."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType

UNSCHEDULED = {"spec.nodeName": "", "status.phase": "Pending"}
"""Field selector for these pods."""


class NodeSelectorRequirement(ApiStruct, frozen=True):
    """A requirement of a node selector."""

    key: str = ""
    operator: str = "In"
    """In, NotIn, Exists, DoesNotExist, Gt or Lt."""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True):
    """Requirements that must all match; an empty term matches no node."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class RequiredNodeTerms(ApiStruct, frozen=True):
    """Terms of which at least one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class NodeAffinity(ApiStruct, frozen=True):
    required: RequiredNodeTerms | None = msgspec.field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(ApiStruct, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()


class ResourceAmounts(ApiStruct, frozen=True):
    limits: dict[str, str] = msgspec.field(default_factory=dict)
    requests: dict[str, str] = msgspec.field(default_factory=dict)


class PendingContainer(ApiStruct, frozen=True):
    resources: ResourceAmounts = ResourceAmounts()
    restart_policy: str = ""
    """``Always`` for an init container that runs beside the others (a sidecar)."""


class SchedulingGate(ApiStruct, frozen=True):
    name: str = ""


class PendingSpec(ApiStruct, frozen=True):
    """Spec of an unscheduled pod."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity = Affinity()
    init_containers: tuple[PendingContainer, ...] = ()
    containers: tuple[PendingContainer, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    """Gates that a user or controller set to keep the pod from being scheduled."""


class PendingPod(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "pods", "Pod")

    spec: PendingSpec = PendingSpec()
