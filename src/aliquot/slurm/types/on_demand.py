"""Types that layouts on demand can provide, from the records that the controller keeps in Slurm, and its settings."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from aliquot.slurm.client.models import SlurmNode
from aliquot.slurm.controller.placeholders import is_ours
from aliquot.slurm.controller.settings import WHOLE, SlurmControllerSettings
from aliquot.slurm.gpus.gres_types import FILLER
from aliquot.slurm.gpus.type_facts import split_type
from aliquot.slurm.types.near import size_order


class DemandOffer(msgspec.Struct, frozen=True):
    """A type that a node can get when a job requests it."""

    type: str
    count: int
    """The maximum number of devices on one node."""
    partitions: tuple[str, ...]


def on_demand_types(nodes: Iterable[SlurmNode], settings: SlurmControllerSettings | None) -> tuple[DemandOffer, ...]:
    """Return the types of the controller's placeholders, those with the most compute slices first.

    A placeholder has what its nodes can be partitioned into, and Slurm knows its partitions. ``settings`` restrict what
    the controller does for jobs of a partition; None if they are not known.
    """
    counts: dict[str, int] = {}
    partitions: dict[str, set[str]] = {}
    for node in nodes:
        if not is_ours(node.name):
            continue
        for gres in node.gres:
            allowed = [name for name in node.partitions if _permitted(gres.type, name, settings)]
            if gres.name == "gpu" and gres.type and gres.type != FILLER and gres.count and allowed:
                counts[gres.type] = max(counts.get(gres.type, 0), gres.count)
                partitions.setdefault(gres.type, set()).update(allowed)
    return tuple(
        DemandOffer(kind, counts[kind], tuple(sorted(partitions[kind]))) for kind in sorted(counts, key=size_order)
    )


def _permitted(kind: str, partition: str, settings: SlurmControllerSettings | None) -> bool:
    if settings is None:
        return True
    rules = settings.partition(partition)
    return rules.demands and (rules.profiles is None or (split_type(kind)[1] or WHOLE) in rules.profiles)
