"""Layouts that jobs ask for by name: a node has the feature where every GPU has exactly these instances. Pure."""

from __future__ import annotations

from collections import Counter

from aliquot.core.planner.node_layout import Bounds, Layout, Placement, exactly
from aliquot.slurm.controller.layout_gpus import makeable
from aliquot.slurm.controller.models import Record
from aliquot.slurm.controller.settings import Settings


def exact(record: Record, name: str, settings: Settings, bounds: Bounds) -> Layout | None:
    """What a record becomes with a layout of the settings. None where a GPU cannot have it, where it may not be made,
    or where the record would have more or less of a type than ``bounds`` say.
    """
    counts = settings.layouts.get(name, {})
    cards: dict[str, Placement] = {}
    changed, destroyed, created = [], 0, 0
    for card in record.cards:
        if not set(counts) <= makeable(card.family, record.host.rules) or not set(counts) <= set(card.family.by_name):
            return None
        placement = exactly(card, {card.family.by_name[p].id: n for p, n in counts.items() if n})
        if placement is None:
            return None
        before, after = set(card.placed or ()), set(placement)
        cards[card.pci] = placement
        destroyed += len(before - after)
        created += len(after - before)
        if card.placed is None or before != after:
            changed.append(card.pci)
    offered = _offered(record, counts)
    if not cards or any(offered[k] > most for k, most in bounds.most.items()):
        return None
    if any(offered[k] < least for k, least in bounds.least.items()):
        return None
    return Layout(cards, (), dict(sorted(offered.items())), tuple(changed), destroyed, created)


def _offered(record: Record, counts: dict[str, int]) -> Counter[str]:
    offered: Counter[str] = Counter()
    for kind, profile in record.names.items():
        offered[kind] += counts.get(profile, 0) * sum(kind in card.kinds for card in record.cards)
    return +offered
