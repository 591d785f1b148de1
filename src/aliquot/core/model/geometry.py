"""A geometry: the multiset of profiles on one GPU. Printed ``3g.20gb:2,1g.5gb:1``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def geometry(names: Iterable[str]) -> Counter[str]:
    """Return the multiset of some profile names."""
    return Counter(names)


def geometry_text(counts: Counter[str]) -> str:
    """Format a geometry, widest first: ``3g.20gb:2,1g.5gb:1``. Returns ``empty`` for no instances."""
    ordered = sorted((name, n) for name, n in counts.items() if n)
    ordered.sort(key=lambda item: -_width(item[0]))
    return ",".join(f"{name}:{n}" for name, n in ordered) or "empty"


def _width(name: str) -> int:
    digits = name.partition("g.")[0].rpartition(".")[2]
    return int(digits) if digits.isdigit() else 0
