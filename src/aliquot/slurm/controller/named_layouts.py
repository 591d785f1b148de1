"""Layouts that jobs request by name: a node has the feature if every GPU has exactly these instances. Pure."""

from __future__ import annotations

from collections import Counter

from aliquot.core.planner.node_layout import Bounds, NodeLayout, PlacedGeometry, cheapest_placement
from aliquot.slurm.controller.layout_gpus import makeable
from aliquot.slurm.controller.models import SlurmNodeState
from aliquot.slurm.controller.settings import SlurmControllerSettings


def exact_layout(
    node_state: SlurmNodeState, name: str, settings: SlurmControllerSettings, bounds: Bounds
) -> NodeLayout | None:
    """Return the node layout for a named layout of the settings.

    Returns None if a GPU does not support it, if the rules forbid it, or if ``bounds`` for a type would be violated.
    """
    counts = settings.layouts.get(name, {})
    placements: dict[str, PlacedGeometry] = {}
    changed, destroyed, created = [], 0, 0
    for gpu in node_state.gpus:
        if not set(counts) <= makeable(gpu.family, node_state.host.rules) or not set(counts) <= set(gpu.family.by_name):
            return None
        placement = cheapest_placement(gpu, {gpu.family.by_name[p].id: n for p, n in counts.items() if n})
        if placement is None:
            return None
        before, after = set(gpu.placed or ()), set(placement)
        placements[gpu.pci] = placement
        destroyed += len(before - after)
        created += len(after - before)
        if gpu.placed is None or before != after:
            changed.append(gpu.pci)
    offered = _offered(node_state, counts)
    if not placements or any(offered[k] > most for k, most in bounds.most.items()):
        return None
    if any(offered[k] < least for k, least in bounds.least.items()):
        return None
    return NodeLayout(placements, (), dict(sorted(offered.items())), tuple(changed), destroyed, created)


def _offered(node_state: SlurmNodeState, counts: dict[str, int]) -> Counter[str]:
    offered: Counter[str] = Counter()
    for kind, profile in node_state.names.items():
        offered[kind] += counts.get(profile, 0) * sum(kind in gpu.kinds for gpu in node_state.gpus)
    return +offered
