"""Minimum and maximum number of devices of each type on a node, from its own rules and those of its partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from aliquot.core.planner.node_layout import Bounds
from aliquot.slurm.controller.layout_gpus import makeable
from aliquot.slurm.controller.models import SlurmNodeState
from aliquot.slurm.controller.settings import SlurmControllerSettings


def bounds(
    node_state: SlurmNodeState,
    node_states: Collection[SlurmNodeState],
    settings: SlurmControllerSettings,
    kinds: Iterable[str],
) -> Bounds:
    """Return the bounds of a node by type, from its own rules and from what its partitions need of it.

    The other ``node_states`` count toward the partitions' rules. The remaining slices are filled with ``kinds``.
    """
    rules = node_state.host.rules
    least, most = Counter(counts_by_type(node_state, rules.keep)), dict(counts_by_type(node_state, rules.most))
    for name in partitions(node_state):
        for kind, required in counts_by_type(node_state, settings.partition(name).keep).items():
            least[kind] = max(least[kind], required - _count_on_others(node_state, node_states, name, kind))
        for kind, limit in counts_by_type(node_state, settings.partition(name).most).items():
            most[kind] = min(
                most.get(kind, limit), max(0, limit - _count_on_others(node_state, node_states, name, kind))
            )
    for kind in _barred(node_state):
        most[kind] = 0
    fill = (*kinds, *counts_by_type(node_state, dict.fromkeys(rules.fill, 1)))
    return Bounds(dict(+least), most, tuple(dict.fromkeys(k for k in fill if k in node_state.names)))


def refusal(node_state: SlurmNodeState, need: Iterable[str]) -> str:
    """Return why a node never gets one of the types; "" if its GPUs and the settings allow them."""
    lacking = [kind for kind in need if kind not in node_state.names]
    if lacking:
        return f"its GPUs do not support {', '.join(lacking)}"
    barred = sorted(_barred(node_state) & set(need))
    return f"the settings allow no {', '.join(barred)} there (profiles)" if barred else ""


def _barred(node_state: SlurmNodeState) -> set[str]:
    """Return the types that the settings do not allow on a node."""
    rules = node_state.host.rules
    allowed = {name for gpu in node_state.gpus for name in makeable(gpu.family, rules)}
    return {kind for kind, profile in node_state.names.items() if profile not in allowed}


def _count_on_others(
    node_state: SlurmNodeState, node_states: Collection[SlurmNodeState], partition: str, kind: str
) -> int:
    """Return how many devices of a type the partition's other nodes have."""
    others = (r for r in node_states if r.name != node_state.name and partition in partitions(r))
    return sum(r.node.count(kind) for r in others if r.node is not None and r.node.answers)


def counts_by_type(node_state: SlurmNodeState, counts: Mapping[str, int]) -> dict[str, int]:
    """Convert counts by profile into counts by type."""
    return {kind: counts[profile] for kind, profile in node_state.names.items() if profile in counts}


def is_counted(partition: str, settings: SlurmControllerSettings) -> bool:
    """Report whether a partition has rules for counts."""
    rules = settings.partition(partition)
    return bool(rules.keep or rules.most)


def partitions(node_state: SlurmNodeState) -> tuple[str, ...]:
    return node_state.node.partitions if node_state.node else ()
