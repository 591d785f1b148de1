"""Host lists in configuration files: ``n[1-4,7],login``. Lists of device files have the same syntax."""

from __future__ import annotations

from functools import lru_cache

from aliquot.slurm.conf import hostlist


@lru_cache(maxsize=4096)
def expand(text: str) -> tuple[str, ...]:
    """Return every name of a list, in its order. Cached, because files repeat the same lists. Raises ValueError."""
    try:
        return hostlist.expand(text)
    except hostlist.HostlistError as error:
        raise ValueError(error.brief) from error


def expand_leniently(text: str) -> tuple[str, ...]:
    """Return every name of a list; an invalid list counts as one name."""
    try:
        return expand(text)
    except ValueError:
        return (text,)
