"""Lists of names in files: ``n[1-4,7],login``. Device files are listed in the same way."""

from __future__ import annotations

from functools import lru_cache

from aliquot.slurm.conf import hostlist


@lru_cache(maxsize=4096)
def expand(text: str) -> tuple[str, ...]:
    """Every name of a list, in its order; files name the same lists again and again. Raises ValueError."""
    try:
        return hostlist.expand(text)
    except hostlist.HostlistError as error:
        raise ValueError(error.brief) from error


def expand_leniently(text: str) -> tuple[str, ...]:
    """The same; a list that cannot be read is one name."""
    try:
        return expand(text)
    except ValueError:
        return (text,)
