"""Demand of a pod for NVIDIA labels and resources of its node. Pure.

The rules of node selectors and node affinity are those of the Kubernetes documentation ("Assigning Pods to Nodes").
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.pending_pod import NodeSelectorRequirement, NodeSelectorTerm, PendingPod
from aliquot.kubernetes.gpu.device_resources import WHOLE_GPU
from aliquot.kubernetes.gpu.gfd_labels import is_own_label
from aliquot.kubernetes.gpu.misspellings import nvidia_like

SELECTOR, AFFINITY = "node selector", "node affinity"


class PodDemand(msgspec.Struct, frozen=True):
    """The demand of a pod, equal for all pods of one template."""

    selector: tuple[NodeSelectorRequirement, ...] = ()
    """Requirements that must all match."""
    terms: tuple[NodeSelectorTerm, ...] | None = None
    """Terms of which at least one must match; None for no terms."""
    resources: tuple[str, ...] = ()
    """Resources of NVIDIA, or misspellings of them, except for whole GPUs."""

    def fits(self, node: Node) -> bool:
        """Report whether the pod may run on the node according to its labels, without regard to resources."""
        labels = node.metadata.labels
        return all(meets(each, labels) for each in self.selector) and (
            self.terms is None or any(_term(term, node) for term in self.terms)
        )

    @property
    def requirements(self) -> tuple[tuple[str, NodeSelectorRequirement], ...]:
        """The requirements for NVIDIA labels or misspellings of them, each with its place in the pod."""
        inside = [each for term in self.terms or () for each in term.match_expressions]
        every = [(SELECTOR, each) for each in self.selector] + [(AFFINITY, each) for each in inside]
        return tuple((where, each) for where, each in every if _is_nvidia_label(each.key))


def demand(pod: PendingPod) -> PodDemand | None:
    """Return a pod's demand; None if it has none, has scheduling gates or is being deleted."""
    spec, required = pod.spec, pod.spec.affinity.node_affinity.required
    if spec.scheduling_gates or pod.metadata.deletion_timestamp:
        return None
    amounts = [each.resources for each in (*spec.init_containers, *spec.containers)]
    resources = {name for each in amounts for name in (*each.limits, *each.requests)}
    found = PodDemand(
        tuple(NodeSelectorRequirement(key, values=(value,)) for key, value in sorted(spec.node_selector.items())),
        None if required is None else required.node_selector_terms,
        tuple(sorted(name for name in resources if "/" in name and nvidia_like(name) and name != WHOLE_GPU)),
    )
    return found if found.resources or found.requirements else None


def meets(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    """Report whether labels meet a requirement."""
    value = labels.get(requirement.key)
    match requirement.operator:
        case "In":
            return value is not None and value in requirement.values
        case "NotIn":
            return value is None or value not in requirement.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return value is not None and _compares(requirement, value)
        case _:
            return True  # an unknown operator of a newer Kubernetes


def _compares(requirement: NodeSelectorRequirement, value: str) -> bool:
    try:
        number, bound = int(value), int(requirement.values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if requirement.operator == "Gt" else number < bound


def _term(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    fields = {"metadata.name": node.name}
    return all(meets(each, node.metadata.labels) for each in term.match_expressions) and all(
        meets(each, fields) for each in term.match_fields
    )


def _is_nvidia_label(label: str) -> bool:
    return nvidia_like(label) if "/" in label else is_own_label(f"nvidia.com/{label}")
