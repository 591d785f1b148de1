"""Pods that no node has taken yet, with no more than what says which nodes they would take."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from aliquot.kubernetes.client.object_base import KubeObject, Part, ResourceType

UNBOUND = {"spec.nodeName": "", "status.phase": "Pending"}
"""The field selector of these pods."""


class NodeRequirement(Part, frozen=True):
    """``operator``: In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str = ""
    operator: str = "In"
    values: tuple[str, ...] = ()


class NodeTerm(Part, frozen=True):
    """All of it must hold; an empty term holds nowhere."""

    match_expressions: tuple[NodeRequirement, ...] = ()
    match_fields: tuple[NodeRequirement, ...] = ()


class NodeTerms(Part, frozen=True):
    """One of them must hold."""

    node_selector_terms: tuple[NodeTerm, ...] = ()


class NodeAffinity(Part, frozen=True):
    required: NodeTerms | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(Part, frozen=True):
    node_affinity: NodeAffinity = NodeAffinity()


class Amounts(Part, frozen=True):
    limits: dict[str, str] = msgspec.field(default_factory=dict)
    requests: dict[str, str] = msgspec.field(default_factory=dict)


class PendingContainer(Part, frozen=True):
    resources: Amounts = Amounts()


class Gate(Part, frozen=True):
    name: str = ""


class PendingSpec(Part, frozen=True):
    """A pod with ``scheduling_gates`` is held back by somebody on purpose."""

    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    affinity: Affinity = Affinity()
    init_containers: tuple[PendingContainer, ...] = ()
    containers: tuple[PendingContainer, ...] = ()
    scheduling_gates: tuple[Gate, ...] = ()


class PendingPod(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("", "v1", "pods", "Pod")

    spec: PendingSpec = PendingSpec()
