"""Pods that no node has taken yet, with no more than what says which nodes they would take."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType

UNSCHEDULED = {"spec.nodeName": "", "status.phase": "Pending"}
"""The field selector of these pods."""


class NodeSelectorRequirement(ApiStruct, frozen=True):
    """``operator``: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = "In"
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiStruct, frozen=True):
    """All of it must hold; an empty term holds nowhere."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class RequiredNodeTerms(ApiStruct, frozen=True):
    """One of them must hold."""

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


class SchedulingGate(ApiStruct, frozen=True):
    name: str = ""


class PendingSpec(ApiStruct, frozen=True):
    """A pod with ``scheduling_gates`` is held back by somebody on purpose."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity = Affinity()
    init_containers: tuple[PendingContainer, ...] = ()
    containers: tuple[PendingContainer, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()


class PendingPod(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "pods", "Pod")

    spec: PendingSpec = PendingSpec()
