"""Entries that select the same GPU and request different states of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aliquot.core.config.file import ConfigEntry
from aliquot.core.config.select.selector import Selector


def agree(one: ConfigEntry, other: ConfigEntry) -> bool:
    """Report whether two entries request the same state, in any order and spelling. The id of a vGPU type may stand for
    any name: only the GPUs define which.
    """
    shares = _share(one) == _share(other)
    numbered = any(w.id is not None for w in (*one.types, *other.types))
    return shares and _wanted(one) == _wanted(other) and (numbered or _types(one) == _types(other))


def _share(entry: ConfigEntry) -> tuple[object, ...]:
    return entry.share, entry.mig, entry.on, entry.mixed_size, entry.scheduler, entry.at_least


def _wanted(entry: ConfigEntry) -> Counter[object]:
    counts: Counter[object] = Counter()
    for w in entry.instances:
        inner = None if w.compute is None else tuple((c.name, c.profile_id, c.start) for c in w.compute)
        counts[w.name, w.profile_id, w.start, inner] += w.count
    return counts


def _types(entry: ConfigEntry) -> dict[str, int]:
    """Return the types by their short names: a full name may stand for the same type."""
    return {w.name.rpartition(" ")[2]: w.count for w in entry.types}


def certain_overlaps(entries: Sequence[ConfigEntry]) -> list[tuple[ConfigEntry, ConfigEntry]]:
    """Return the pairs (later, earlier) that conflict on every node with the named GPUs. Other pairs conflict only if a
    GPU matches both, which the selection of GPUs finds.
    """
    return [
        (later, earlier)
        for n, later in enumerate(entries)
        for earlier in entries[:n]
        if _surely_meet(later.selector, earlier.selector) and not agree(later, earlier)
    ]


def _surely_meet(one: Selector, other: Selector) -> bool:
    if one == other:
        return one.indexes != ()
    by_index = Selector(indexes=one.indexes), Selector(indexes=other.indexes)
    if (one, other) != by_index:
        return False
    if one.indexes is None or other.indexes is None:
        return bool(one.indexes or other.indexes)
    return bool(set(one.indexes) & set(other.indexes))
