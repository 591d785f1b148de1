"""What a pod demands of its node, as far as NVIDIA's labels and resources are concerned: pure.

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
    """``selector`` must hold and, where there are any, one of ``terms``. ``resources`` are the NVIDIA-like ones but for
    whole GPUs. Equal for all pods of one template.
    """

    selector: tuple[NodeSelectorRequirement, ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    resources: tuple[str, ...] = ()

    def fits(self, node: Node) -> bool:
        """Whether the node is one of those that the pod may go to, whatever it offers."""
        labels = node.metadata.labels
        return all(meets(each, labels) for each in self.selector) and (
            self.terms is None or any(_term(term, node) for term in self.terms)
        )

    @property
    def requirements(self) -> tuple[tuple[str, NodeSelectorRequirement], ...]:
        """Each one about NVIDIA-like labels, and where it stands."""
        inside = [each for term in self.terms or () for each in term.match_expressions]
        every = [(SELECTOR, each) for each in self.selector] + [(AFFINITY, each) for each in inside]
        return tuple((where, each) for where, each in every if _is_nvidia_label(each.key))


def demand(pod: PendingPod) -> PodDemand | None:
    """None for a pod that demands nothing of this sort, is held back on purpose, or is about to go."""
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
    """Whether labels meet one requirement."""
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
            return True  # an operator of a newer Kubernetes: not ours to judge


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
