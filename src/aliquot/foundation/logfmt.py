"""Logs of the agents and of the controller, in the format of mig-manager's log."""

from __future__ import annotations

import logging
import sys
import time

agent_log = logging.getLogger("aliquot.agent")
"""One line for each step of a node's agent."""
controller_log = logging.getLogger("aliquot.controller")
"""One line for each action or failure of the cluster's controller."""


class _Line(logging.Formatter):
    """A formatter for ``time="2026-01-02T03:04:05Z" level=info msg="..."``; a record marked ``plain`` is printed bare.

    It escapes control characters in both: messages contain external names, which must not begin a line or control a
    terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if getattr(record, "plain", False):
            return _escaped(text)
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        quoted = _escaped(text.replace("\\", "\\\\").replace('"', '\\"'))
        return f'time="{stamp}" level={record.levelname.lower()} msg="{quoted}"'


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def start(log: logging.Logger, *, debug: bool) -> None:
    """Send a log to stderr, like all output that is not a result."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if debug else logging.INFO)


class NewWarnings:
    """Warnings about lasting conditions. ``current`` are the latest ones; each is logged when it appears."""

    def __init__(self, log: logging.Logger) -> None:
        self.current: tuple[str, ...] = ()
        self._log = log

    def update(self, sentences: tuple[str, ...]) -> None:
        """Log the sentences that were not in the previous update."""
        for sentence in sentences:
            if sentence not in self.current:
                self._log.warning("%s", sentence)
        self.current = sentences


def plain(text: str) -> None:
    """Log a bare line, for the few lines that people and scripts match word by word."""
    agent_log.info("%s", text, extra={"plain": True})
