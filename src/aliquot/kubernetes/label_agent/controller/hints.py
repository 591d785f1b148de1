"""Pure hints for pods that stay pending because they request a misspelled name or an instance that no GPU has yet.

To avoid false alarms, a pod gets none if any node fits. There is also none about something that exists only elsewhere
or will exist soon, such as another product or a resource that a running change creates.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from aliquot.core.config.generate import all_of
from aliquot.core.model import catalog
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.pending_pod import NodeSelectorRequirement
from aliquot.kubernetes.gpu import misspellings as nearmiss
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.label_names import profile_word
from aliquot.kubernetes.label_agent.controller import node_labels as gpu_nodes
from aliquot.kubernetes.label_agent.controller.pod_demand import PodDemand

_PREFIX = "nvidia.com/"
_PROFILE = _PREFIX + nearmiss.MIG
_MOST = 3
"""Maximum number of suggestions."""
_CHANGING = ("pending", "rebooting")


class NodeFleet(msgspec.Struct, frozen=True):
    """The nodes of the cluster."""

    nodes: tuple[Node, ...]
    values: dict[str, frozenset[str]]
    """Values of each NVIDIA label."""
    offered: frozenset[str]
    """Resources that any node offers."""
    held: frozenset[str] = frozenset()
    """Names of nodes whose GPUs have holders."""


def build_fleet(nodes: Iterable[Node], held: Collection[str] = ()) -> NodeFleet:
    ordered = tuple(sorted(nodes, key=lambda node: node.name))
    values: dict[str, set[str]] = {}
    offered: set[str] = set()
    for node in ordered:
        for label, value in node.metadata.labels.items():
            if label.startswith(_PREFIX):
                values.setdefault(label, set()).add(value)
                # gpu-feature-discovery counts devices even while a device plugin restarts.
                if label.startswith(_PROFILE) and label.endswith(".count") and value != "0":
                    offered.add(label.removesuffix(".count"))
        counts = (*node.status.capacity.items(), *node.status.allocatable.items())
        offered |= {resource for resource, count in counts if count != "0"}
    return NodeFleet(
        ordered, {label: frozenset(found) for label, found in values.items()}, frozenset(offered), frozenset(held)
    )


def partitionable_nodes(demand: PodDemand, fleet: NodeFleet) -> frozenset[str]:
    """Return the nodes that a hint may suggest to partition, one for each resource, whose holders must be checked."""
    found = set()
    for resource in demand.resources:
        if resource not in fleet.offered and not _misspelling_hints(resource, fleet):
            mixed = [node.name for node, _ in _capable_nodes(resource, demand, fleet) if _uses_mixed_strategy(node)]
            found |= set([name for name in mixed if name not in fleet.held][:1])
    return frozenset(found)


def hints(demand: PodDemand, fleet: NodeFleet, config_map: str = "") -> tuple[str, ...]:
    """Return hints as sentences, in the order of the demand.

    ``config_map`` is the user's ConfigMap of named configs; empty if each node has generated ones.
    """
    found: list[str] = []
    if not any(demand.fits(node) for node in fleet.nodes):
        for where, requirement in demand.requirements:
            found += _label_hints(where, requirement, fleet)
    for resource in demand.resources:
        if resource not in fleet.offered:
            found += _misspelling_hints(resource, fleet) or _unpartitioned_hints(resource, demand, fleet, config_map)
    return tuple(dict.fromkeys(found))


# -- labels


def _label_hints(where: str, requirement: NodeSelectorRequirement, fleet: NodeFleet) -> list[str]:
    """Return hints for a requirement that no node meets."""
    label, present = requirement.key, fleet.values.get(requirement.key, frozenset())
    if requirement.operator == "Exists" and not present:
        keys = [other for other in fleet.values if nearmiss.near_label(label, other)]
        return [f"{where} {label} matches no node: did you mean {_or(keys)}?"] if keys else []
    if requirement.operator != "In" or present & set(requirement.values):
        return []
    return [sentence for requested in requirement.values for sentence in _value_hints(where, label, requested, fleet)]


def _value_hints(where: str, label: str, requested: str, fleet: NodeFleet) -> list[str]:
    start = f"{where} {label}={requested} matches no node: "
    present = fleet.values.get(label, frozenset())
    near = [value for value in present if nearmiss.near_value(label, requested, value)]
    if not present:
        near += [
            f"{other}={value}"
            for other, values in fleet.values.items()
            if nearmiss.near_label(label, other)
            for value in values
            if value == requested or nearmiss.near_value(other, requested, value)
        ]
    if near:
        return [f"{start}did you mean {_or(near)}?"]
    divided = [
        value for value in present if label == names.PRODUCT_LABEL and nearmiss.names_whole_product(requested, value)
    ]
    return [f"{start}under strategy single the MIG profile is part of the name, {_or(divided)}"] if divided else []


def _or(meanings: Collection[str]) -> str:
    return " or ".join(sorted(meanings)[:_MOST])


# -- resources


def _misspelling_hints(resource: str, fleet: NodeFleet) -> list[str]:
    near = {other for other in fleet.offered if nearmiss.near_resource(resource, other)}
    near = near or {other for other in _possible_resources(fleet) if nearmiss.near_resource(resource, other)}
    return [f"no node offers {resource}: did you mean {_or(near)}?"] if near else []


def _possible_resources(fleet: NodeFleet) -> set[str]:
    """Return the resources of all profiles of the nodes' GPUs."""
    families = {name for product in fleet.values.get(names.PRODUCT_LABEL, ()) for name in gpu_nodes.families(product)}
    return {_PROFILE + profile_word(profile.name) for name in families for profile in catalog.family(name).profiles}


def _unpartitioned_hints(resource: str, demand: PodDemand, fleet: NodeFleet, config_map: str) -> list[str]:
    """Return a hint with a node that could offer a resource after a change."""
    capable = _capable_nodes(resource, demand, fleet)
    mixed = [(node, profile) for node, profile in capable if _uses_mixed_strategy(node)]
    if not capable:
        return []
    if not mixed:
        node = capable[0][0]
        now = node.metadata.labels.get(names.STRATEGY_LABEL, "none")
        return [f"no node offers {resource}: {node.name} could with MIG strategy mixed instead of {now}"]
    if any(_is_changing(node, all_of(profile)) for node, profile in mixed):
        return []
    free = [(node, profile) for node, profile in mixed if node.name not in fleet.held]
    if not free:
        return [f"no node offers {resource} now; {mixed[0][0].name} could, but its GPUs are in use"]
    node, profile = free[0]
    start = f"no node offers {resource} now; {node.name} can"
    if config_map not in ("", names.DEFAULT_CONFIG_MAP):
        return [f"{start}, with a named config of ConfigMap {config_map} that creates {profile}"]
    return [f"{start}: kubectl label node {node.name} {names.CONFIG_LABEL}={all_of(profile)} --overwrite"]


def _capable_nodes(resource: str, demand: PodDemand, fleet: NodeFleet) -> list[tuple[Node, str]]:
    """Return the nodes that could offer a resource, with its profile."""
    return [(node, profile) for node in fleet.nodes if demand.fits(node) and (profile := _profile_for(node, resource))]


def _uses_mixed_strategy(node: Node) -> bool:
    return node.metadata.labels.get(names.STRATEGY_LABEL) == "mixed"


def _profile_for(node: Node, resource: str) -> str:
    """Return the profile of a resource if an agent manages the node and its GPUs have the profile; else empty."""
    labels = node.metadata.labels
    families = gpu_nodes.families(labels.get(names.PRODUCT_LABEL, ""))
    if node.spec.unschedulable or labels.get(names.DEPLOY_LABEL) != "true" or not families:
        return ""
    if gpu_nodes.node_capability(labels).capable is not True:
        return ""
    tables = [
        {_PROFILE + profile_word(profile.name): profile.name for profile in catalog.family(name).profiles}
        for name in families
    ]
    return tables[0][resource] if all(resource in table for table in tables) else ""


def _is_changing(node: Node, config: str) -> bool:
    """Report whether a change is running that may create the resource, or whose status already gives the reason."""
    labels = node.metadata.labels
    return labels.get(names.CONFIG_LABEL) == config or labels.get(names.STATE_LABEL) in _CHANGING
