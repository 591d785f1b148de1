"""Seconds per GPU instance with its compute instance, by compute slices.

The authors of FAR (JPDC'25, arXiv 2507.13601) measured them on three GPUs. The constants are those of their code,
artecs-group/RL_MIG_scheduler at b5c1b9c.
"""

from __future__ import annotations

from collections.abc import Iterable

Table = tuple[dict[int, float], dict[int, float]]
"""Seconds of creating and of destroying."""

A30: Table = ({1: 0.11, 2: 0.12, 4: 0.13}, {1: 0.10, 2: 0.10, 4: 0.10})
A100: Table = (
    {1: 0.16, 2: 0.17, 3: 0.20, 4: 0.21, 7: 0.24},
    {1: 0.20, 2: 0.20, 3: 0.21, 4: 0.21, 7: 0.22},
)
H100: Table = (
    {1: 0.16, 2: 0.21, 3: 0.33, 4: 0.38, 7: 0.42},
    {1: 0.21, 2: 0.23, 3: 0.25, 4: 0.26, 7: 0.26},
)


def of(family: str) -> Table:
    """Return the table of a family. Blackwell, for which there are no measurements, counts as H100."""
    return A30 if family.startswith("a30") else A100 if family.startswith(("a100", "ga100")) else H100


def seconds(table: Table, destroyed: Iterable[str], created: Iterable[str]) -> float:
    """Sum the seconds of calls on one GPU, which run one after another. Names are profile names: ``3g.20gb``."""
    create, destroy = table
    return sum(_nearest(destroy, name) for name in destroyed) + sum(_nearest(create, name) for name in created)


def _nearest(table: dict[int, float], name: str) -> float:
    slices = int(name.partition("g")[0])
    return table[min(table, key=lambda n: abs(n - slices))]
