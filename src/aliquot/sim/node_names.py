"""Names for nodes that are started, one or many at once."""

from __future__ import annotations

from collections.abc import Container

from aliquot.errors import UsageError
from aliquot.foundation.decimals import decimal

MAX_NODES = 2000
"""Nodes that one command may start: a server holds four files of each open."""


def names_for(requested: str | None, plain: str, count: str | None, taken: Container[str]) -> list[str]:
    """``requested`` itself, or ``plain`` (what the template suggests) with a number where that is taken. With a
    ``count`` numbered names, ``gpu-0001`` to ``gpu-1000``, of equal length so that they sort. Raises UsageError.
    """
    if count is None:
        if requested is not None:
            return [requested]
        return [next(n for n in (plain, *(f"{plain}-{i}" for i in range(2, 10_000))) if n not in taken)]
    number = decimal(count) or 0
    if not 1 <= number <= MAX_NODES:
        raise UsageError(
            f"--count {count}: the number of nodes is 1 to {MAX_NODES}", next_step="aliquot sim start --help"
        )
    width = max(len(count), 2)
    return [f"{requested or plain}-{n:0{width}d}" for n in range(1, number + 1)]
