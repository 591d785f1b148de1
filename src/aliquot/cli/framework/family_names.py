"""Families of the catalog that a user names."""

from __future__ import annotations

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family
from aliquot.errors import ConfigError


def find_family(name: str) -> Family:
    """Return a family by its name. Raises ConfigError for an unknown one, with the closest names."""
    if name in catalog.family_names():
        return catalog.family(name)
    import difflib

    close = difflib.get_close_matches(name, catalog.family_names(), 3)
    details = (f"close: {', '.join(close)}",) if close else ()
    following = f"aliquot catalog show {close[0]}" if close else "aliquot catalog list"
    raise ConfigError(f"the catalog has no family {name!r}", details=details, next_step=following)
