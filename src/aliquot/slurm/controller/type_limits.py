"""How many devices of each type a record has to keep, and may have at most: by its own rules and its partitions'."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from aliquot.core.planner.node_layout import Bounds
from aliquot.slurm.controller.layout_gpus import makeable
from aliquot.slurm.controller.models import Record
from aliquot.slurm.controller.settings import Settings


def bounds(record: Record, records: Collection[Record], settings: Settings, kinds: Iterable[str]) -> Bounds:
    """The record's own rules and what its partitions need of it among all ``records``, by type. Room that is left over
    is filled with ``kinds``.
    """
    rules = record.host.rules
    least, most = Counter(types(record, rules.keep)), dict(types(record, rules.most))
    for name in partitions(record):
        for kind, asked in types(record, settings.partition(name).keep).items():
            least[kind] = max(least[kind], asked - _elsewhere(record, records, name, kind))
        for kind, limit in types(record, settings.partition(name).most).items():
            most[kind] = min(most.get(kind, limit), max(0, limit - _elsewhere(record, records, name, kind)))
    allowed = {name for card in record.cards for name in makeable(card.family, rules)}
    for kind, profile in record.names.items():
        if profile not in allowed:
            most[kind] = 0
    fill = (*kinds, *types(record, dict.fromkeys(rules.fill, 1)))
    return Bounds(dict(+least), most, tuple(dict.fromkeys(k for k in fill if k in record.names)))


def _elsewhere(record: Record, records: Collection[Record], partition: str, kind: str) -> int:
    """How many devices of a type the partition's other records have."""
    others = (r for r in records if r.name != record.name and partition in partitions(r))
    return sum(r.node.count(kind) for r in others if r.node is not None and r.node.answers)


def types(record: Record, counts: Mapping[str, int]) -> dict[str, int]:
    """Counts by type, of counts by profile."""
    return {kind: counts[profile] for kind, profile in record.names.items() if profile in counts}


def counted(partition: str, settings: Settings) -> bool:
    """Whether counts are kept in a partition."""
    rules = settings.partition(partition)
    return bool(rules.keep or rules.most)


def partitions(record: Record) -> tuple[str, ...]:
    return record.node.partitions if record.node else ()
