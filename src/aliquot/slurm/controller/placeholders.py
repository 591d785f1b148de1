"""Placeholder nodes for layouts that no node has now, so that Slurm queues jobs for them instead of refusing them.

They are FUTURE and drained: Slurm does not show them, and never gives them a job. Such a record survives a restart of
slurmctld (22.05, 24.11), but its types do not, so each round compares it and creates it again. If slurm.conf has a
FUTURE line with the same content, no placeholder is created.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aliquot.core.planner.node_layout import WHOLE_GPU
from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.controller.layout_gpus import makeable
from aliquot.slurm.controller.models import MARK, SlurmNodeState

PREFIX = "aliquot-layouts-"
REASON = f"{MARK}placeholder for layouts that GPUs get when jobs request them"
WORD = re.compile(r"[A-Za-z0-9_.=+:@/-]{1,128}", re.ASCII)
"""A feature that is safe in a node line. Nodes choose features, and other text could add keys to the line."""
MOST = 16
"""Limit of placeholders for one kind of node. Slurm refuses a job that needs an absent layout on more nodes."""


class Placeholder(msgspec.Struct, frozen=True):
    """A placeholder node."""

    gres: tuple[tuple[str, int], ...]
    """The maximum number of devices that one node can have of each type."""
    features: tuple[str, ...]
    """Partitions that are node sets include the placeholder because of its features."""
    shape: str
    """CPUs and memory, as in a node line."""
    number: int = 0

    @property
    def name(self) -> str:
        """The name depends on the content, so that a new placeholder can exist before the old one is deleted."""
        text = repr((self.gres, self.features, self.shape))
        return f"{PREFIX}{hashlib.sha256(text.encode()).hexdigest()[:8]}-{self.number}"

    @property
    def gres_text(self) -> str:
        return ",".join(f"gpu:{kind}:{n}" for kind, n in self.gres)

    @property
    def line(self) -> str:
        """The node line for ``scontrol create`` and slurm.conf."""
        features = f" Feature={','.join(self.features)}" if self.features else ""
        return f"NodeName={self.name} {self.shape} Gres={self.gres_text}{features} State=FUTURE"


class PlaceholderActions(msgspec.Struct, frozen=True):
    """The placeholders to create, to drain and to delete, in this order."""

    create: tuple[Placeholder, ...] = ()
    drain: tuple[str, ...] = ()
    delete: tuple[str, ...] = ()


def is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def required_placeholders(
    node_states: Iterable[SlurmNodeState], layouts: Mapping[str, object]
) -> tuple[Placeholder, ...]:
    """Return the placeholders that nodes need: for each kind of node as many as there are nodes, up to ``MOST``."""
    groups: dict[tuple[str, ...], list[SlurmNodeState]] = {}
    for node_state in node_states:
        if node_state.node is not None and node_state.gpus and not node_state.host.rules.untouched:
            plain = tuple(sorted(f for f in node_state.node.features if f not in layouts and WORD.fullmatch(f)))
            groups.setdefault(plain, []).append(node_state)
    found: list[Placeholder] = []
    for features, members in sorted(groups.items()):
        gres: Counter[str] = Counter()
        for node_state in members:
            gres |= max_devices(node_state)
        if gres:
            shape = _shape([r.node for r in members if r.node is not None])
            content = Placeholder(tuple(sorted(gres.items())), (*features, *sorted(layouts)), shape)
            found += [msgspec.structs.replace(content, number=n) for n in range(min(len(members), MOST))]
    return tuple(found)


def max_devices(node_state: SlurmNodeState) -> Counter[str]:
    """Return the maximum number of devices of each type that a node can be partitioned into, one type at a time."""
    out: Counter[str] = Counter()
    for gpu in node_state.gpus:
        allowed = makeable(gpu.family, node_state.host.rules)
        for kind, profile in gpu.kinds.items():
            if node_state.names.get(kind) in allowed and not gpu.locked:
                out[kind] += 1 if profile == WHOLE_GPU else gpu.family.by_id[profile].max_instances
    return out


def _shape(nodes: Sequence[SlurmNode]) -> str:
    """Return the largest CPUs and memory, so that Slurm accepts a job that fits one of the nodes."""
    biggest = max(nodes, key=lambda n: (n.cpus, n.memory_mib, n.name))
    memory = max(n.memory_mib for n in nodes)
    parts = biggest.sockets, biggest.cores, biggest.threads
    if all(parts) and parts[0] * parts[1] * parts[2] == biggest.cpus:
        cpus = f"Sockets={parts[0]} CoresPerSocket={parts[1]} ThreadsPerCore={parts[2]}"
    else:
        cpus = f"CPUs={biggest.cpus}"
    return f"{cpus} RealMemory={memory}"


def plan_actions(nodes: Iterable[SlurmNode], need: Sequence[Placeholder]) -> PlaceholderActions:
    """Compare Slurm's placeholders with the required ones, and return the actions."""
    known = {n.name: n for n in nodes}
    others = [n for n in known.values() if "FUTURE" in n.states and not is_ours(n.name)]
    keep = [p for p in need if not any(_stands_for(n, p) for n in others)]
    good = {p.name for p in keep if p.name in known and _stands_for(known[p.name], p)}
    return PlaceholderActions(
        create=tuple(p for p in keep if p.name not in good),
        drain=tuple(name for name in sorted(good) if not known[name].draining),
        delete=tuple(sorted(name for name in known if is_ours(name) and name not in good)),
    )


def _stands_for(node: SlurmNode, need: Placeholder) -> bool:
    counts = {g.type: g.count for g in node.gres if g.name == "gpu"}
    return all(counts.get(kind, 0) >= n for kind, n in need.gres) and set(need.features) <= set(node.features)
