"""The server log on stderr. Untrusted values are made printable, so that no log line can be forged."""

from __future__ import annotations

import logging

log = logging.getLogger("aliquot.dashboard")


class Printable(logging.Filter):
    """A filter that replaces unprintable characters in log values, so that no value can start another line."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(printable(value) if isinstance(value, str) else value for value in record.args)
        return True


def printable(text: str, most: int = 500) -> str:
    """Replace control characters and truncate to ``most`` characters."""
    shown = "".join(c if c.isprintable() else "?" for c in text[:most])
    return shown + ("…" if len(text) > most else "")


log.addFilter(Printable())
