"""Why a pod waits for ever: a sentence for what no node has and some node nearly has. Pure.

No false alarms: nothing is said while any node fits, nor about anything that is merely somewhere else or not there yet,
such as another product or a resource that a change under way will bring.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from aliquot.core.config.generate import all_of
from aliquot.core.model import catalog
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.client.pending_pod import NodeRequirement
from aliquot.kubernetes.gpu import misspellings as nearmiss
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.label_names import profile_word
from aliquot.kubernetes.label_agent.controller import node_labels as gpu_nodes
from aliquot.kubernetes.label_agent.controller.pod_demand import Demand

_PREFIX = "nvidia.com/"
_PROFILE = _PREFIX + nearmiss.MIG
_MOST = 3
"""Possible meanings that are named at most."""
_CHANGING = ("pending", "rebooting")


class Fleet(msgspec.Struct, frozen=True):
    """The nodes, with the values of each NVIDIA label among them and the resources that any of them offers. ``held``
    are the names of nodes on whose GPUs somebody is.
    """

    nodes: tuple[Node, ...]
    values: dict[str, frozenset[str]]
    offered: frozenset[str]
    held: frozenset[str] = frozenset()


def fleet(nodes: Iterable[Node], held: Collection[str] = ()) -> Fleet:
    kept = tuple(sorted(nodes, key=lambda node: node.name))
    values: dict[str, set[str]] = {}
    offered: set[str] = set()
    for node in kept:
        for label, value in node.metadata.labels.items():
            if label.startswith(_PREFIX):
                values.setdefault(label, set()).add(value)
                # gpu-feature-discovery counts devices even while a device plugin restarts.
                if label.startswith(_PROFILE) and label.endswith(".count") and value != "0":
                    offered.add(label.removesuffix(".count"))
        counts = (*node.status.capacity.items(), *node.status.allocatable.items())
        offered |= {resource for resource, count in counts if count != "0"}
    return Fleet(
        kept, {label: frozenset(found) for label, found in values.items()}, frozenset(offered), frozenset(held)
    )


def divisible(demand: Demand, there: Fleet) -> frozenset[str]:
    """The nodes that a hint may name to be divided, the first for each resource: who is on them is worth a look."""
    found = set()
    for resource in demand.resources:
        if resource not in there.offered and not _misspelt(resource, there):
            mixed = [node.name for node, _ in _able(resource, demand, there) if _mixed(node)]
            found |= set([name for name in mixed if name not in there.held][:1])
    return frozenset(found)


def hints(demand: Demand, there: Fleet, config_map: str = "") -> tuple[str, ...]:
    """Sentences, in the order of the demand. ``config_map`` names the owner's ConfigMap of named configs; empty where
    each node has those that are generated for it.
    """
    found: list[str] = []
    if not any(demand.fits(node) for node in there.nodes):
        for where, requirement in demand.requirements:
            found += _spelling(where, requirement, there)
    for resource in demand.resources:
        if resource not in there.offered:
            found += _misspelt(resource, there) or _uncut(resource, demand, there, config_map)
    return tuple(dict.fromkeys(found))


# -- labels


def _spelling(where: str, requirement: NodeRequirement, there: Fleet) -> list[str]:
    """What one requirement, which no node meets, may have meant."""
    label, present = requirement.key, there.values.get(requirement.key, frozenset())
    if requirement.operator == "Exists" and not present:
        keys = [other for other in there.values if nearmiss.near_label(label, other)]
        return [f"{where} {label} matches no node: {_or(keys)} was probably meant"] if keys else []
    if requirement.operator != "In" or present & set(requirement.values):
        return []
    return [sentence for asked in requirement.values for sentence in _value(where, label, asked, there)]


def _value(where: str, label: str, asked: str, there: Fleet) -> list[str]:
    start = f"{where} {label}={asked} matches no node: "
    present = there.values.get(label, frozenset())
    near = [value for value in present if nearmiss.near_value(label, asked, value)]
    if not present:
        near += [
            f"{other}={value}"
            for other, values in there.values.items()
            if nearmiss.near_label(label, other)
            for value in values
            if value == asked or nearmiss.near_value(other, asked, value)
        ]
    if near:
        return [f"{start}{_or(near)} was probably meant"]
    divided = [value for value in present if label == names.PRODUCT_LABEL and nearmiss.undivided(asked, value)]
    return [f"{start}under strategy single the MIG profile is part of the name, {_or(divided)}"] if divided else []


def _or(meanings: Collection[str]) -> str:
    return " or ".join(sorted(meanings)[:_MOST])


# -- resources


def _misspelt(resource: str, there: Fleet) -> list[str]:
    near = {other for other in there.offered if nearmiss.near_resource(resource, other)}
    near = near or {other for other in _possible(there) if nearmiss.near_resource(resource, other)}
    return [f"no node offers {resource}: {_or(near)} was probably meant"] if near else []


def _possible(there: Fleet) -> set[str]:
    """The resources of all profiles that the nodes' GPUs have."""
    families = {name for product in there.values.get(names.PRODUCT_LABEL, ()) for name in gpu_nodes.families(product)}
    return {_PROFILE + profile_word(profile.name) for name in families for profile in catalog.family(name).profiles}


def _uncut(resource: str, demand: Demand, there: Fleet, config_map: str) -> list[str]:
    """Which node could offer a resource, if it were asked to."""
    able = _able(resource, demand, there)
    mixed = [(node, profile) for node, profile in able if _mixed(node)]
    if not able:
        return []
    if not mixed:
        node = able[0][0]
        now = node.metadata.labels.get(names.STRATEGY_LABEL, "none")
        return [f"no node offers {resource}: {node.name} could, under MIG strategy mixed, not {now}"]
    if any(_expected(node, all_of(profile)) for node, profile in mixed):
        return []
    free = [(node, profile) for node, profile in mixed if node.name not in there.held]
    if not free:
        return [f"no node offers {resource} now; {mixed[0][0].name} could, but its GPUs are in use"]
    node, profile = free[0]
    start = f"no node offers {resource} now; {node.name} can"
    if config_map not in ("", names.DEFAULT_CONFIG_MAP):
        return [f"{start}, with a named config of ConfigMap {config_map} that makes {profile}"]
    return [f"{start}: kubectl label node {node.name} {names.CONFIG_LABEL}={all_of(profile)} --overwrite"]


def _able(resource: str, demand: Demand, there: Fleet) -> list[tuple[Node, str]]:
    """The nodes that could offer a resource, and the profile behind it."""
    return [(node, profile) for node in there.nodes if demand.fits(node) and (profile := _cut(node, resource))]


def _mixed(node: Node) -> bool:
    return node.metadata.labels.get(names.STRATEGY_LABEL) == "mixed"


def _cut(node: Node, resource: str) -> str:
    """The profile behind a resource, if the GPUs of a node that an agent looks after have it; else ""."""
    labels = node.metadata.labels
    families = gpu_nodes.families(labels.get(names.PRODUCT_LABEL, ""))
    if node.spec.unschedulable or labels.get(names.DEPLOY_LABEL) != "true" or not families:
        return ""
    if gpu_nodes.capability(labels).capable is not True:
        return ""
    tables = [
        {_PROFILE + profile_word(profile.name): profile.name for profile in catalog.family(name).profiles}
        for name in families
    ]
    return tables[0][resource] if all(resource in table for table in tables) else ""


def _expected(node: Node, config: str) -> bool:
    """Something is under way that may bring it, or its owner was told why not."""
    labels = node.metadata.labels
    return labels.get(names.CONFIG_LABEL) == config or labels.get(names.STATE_LABEL) in _CHANGING
