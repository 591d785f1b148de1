"""Messages between kube-scheduler and an extender (``k8s.io/kube-scheduler/extender/v1``).

The outer names are Go's field names, since these types have no JSON names of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot.kubernetes.client.codec import UNREADABLE, without_nulls
from aliquot.kubernetes.client.object_base import ApiStruct, ObjectMeta
from aliquot.kubernetes.client.pending_pod import PendingContainer

MOST_PRIORITY = 10
"""The greatest score of an extender. The scheduler multiplies it by ten and by the extender's weight."""


class PodClaim(ApiStruct, frozen=True):
    """A claim in the spec of a pod: an existing one, or one that is made from a template."""

    name: str
    resource_claim_name: str = ""


class PodClaimStatus(ApiStruct, frozen=True):
    """The claim that was made for a pod from a template. Without a name the pod needs none."""

    name: str
    resource_claim_name: str = ""


class ScheduledPodSpec(ApiStruct, frozen=True):
    init_containers: tuple[PendingContainer, ...] = ()
    containers: tuple[PendingContainer, ...] = ()
    resource_claims: tuple[PodClaim, ...] = ()


class ScheduledPodStatus(ApiStruct, frozen=True):
    resource_claim_statuses: tuple[PodClaimStatus, ...] = ()


class ScheduledPod(ApiStruct, frozen=True):
    """The pod that is being scheduled."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScheduledPodSpec = ScheduledPodSpec()
    status: ScheduledPodStatus = ScheduledPodStatus()

    def __str__(self) -> str:
        name = f"pod {self.metadata.namespace}/{self.metadata.name}"
        return "".join(each if each.isprintable() else "?" for each in name)

    @property
    def claim_names(self) -> tuple[str, ...]:
        """The names of its claims, which are in its namespace."""
        made = {each.name: each.resource_claim_name for each in self.status.resource_claim_statuses}
        names = (each.resource_claim_name or made.get(each.name, "") for each in self.spec.resource_claims)
        return tuple(name for name in names if name)


class _NamedNode(ApiStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


class _NodeList(ApiStruct, frozen=True):
    items: tuple[_NamedNode, ...] = ()


class _Arguments(msgspec.Struct, frozen=True, rename="pascal"):
    pod: ScheduledPod
    nodes: _NodeList = _NodeList()
    node_names: tuple[str, ...] = ()


class PrioritizeRequest(msgspec.Struct, frozen=True):
    """A pod, and the names of the nodes that can run it."""

    pod: ScheduledPod
    nodes: tuple[str, ...]


class _HostPriority(msgspec.Struct, frozen=True, rename="pascal"):
    host: str
    score: int


_decoder = msgspec.json.Decoder(_Arguments)


def decode_request(body: bytes) -> PrioritizeRequest:
    """Decode ExtenderArgs, with node names or with whole nodes. Raises ValueError if the body is anything else."""
    try:
        try:
            found = _decoder.decode(body)
        except msgspec.ValidationError:
            found = msgspec.convert(without_nulls(msgspec.json.decode(body)), _Arguments)
    except UNREADABLE as error:
        raise ValueError(f"not ExtenderArgs: {error}") from error
    names = found.node_names or tuple(each.metadata.name for each in found.nodes.items)
    return PrioritizeRequest(found.pod, names)


def encode_priorities(priorities: Mapping[str, int]) -> bytes:
    """Encode a HostPriorityList."""
    return msgspec.json.encode([_HostPriority(node, score) for node, score in priorities.items()])
