"""What the page's server says on stderr. What comes from outside is made printable: no line can be forged."""

from __future__ import annotations

import logging

log = logging.getLogger("aliquot.dashboard")


class Printable(logging.Filter):
    """Replaces what cannot be printed in the values of a line, so that none of them begins another line."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(printable(value) if isinstance(value, str) else value for value in record.args)
        return True


def printable(text: str, most: int = 500) -> str:
    """Without control characters, and cut."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:most])
    return shown + ("…" if len(text) > most else "")


log.addFilter(Printable())
