"""Entries that claim one GPU and want different things of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from aliquot.core.config.file import ConfigEntry
from aliquot.core.config.select.selector import Selector


def agree(one: ConfigEntry, other: ConfigEntry) -> bool:
    """Whether two entries want the same of a GPU, whatever the order and spelling of their wishes. A vGPU type's
    number may stand for any name: which, only the GPUs tell.
    """
    shares = (one.share, one.mig, one.on, one.mixed_size) == (other.share, other.mig, other.on, other.mixed_size)
    numbered = any(w.id is not None for w in (*one.types, *other.types))
    return shares and _wanted(one) == _wanted(other) and (numbered or _types(one) == _types(other))


def _wanted(entry: ConfigEntry) -> Counter[object]:
    counts: Counter[object] = Counter()
    for w in entry.instances:
        inner = None if w.compute is None else tuple((c.name, c.profile_id, c.start) for c in w.compute)
        counts[w.name, w.profile_id, w.start, inner] += w.count
    return counts


def _types(entry: ConfigEntry) -> dict[str, int]:
    """Types by their short names: a full name may stand for the same type."""
    return {w.name.rpartition(" ")[2]: w.count for w in entry.types}


def certain_overlaps(entries: Sequence[ConfigEntry]) -> list[tuple[ConfigEntry, ConfigEntry]]:
    """Pairs (later, earlier) that must clash on every machine that has the GPUs named. Others clash only where a GPU
    meets both: that is found when GPUs are selected.
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
