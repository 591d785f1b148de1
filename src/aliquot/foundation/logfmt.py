"""The logs of the agents and of the controller, in the form that readers of mig-manager's log know."""

from __future__ import annotations

import logging
import sys
import time

agent_log = logging.getLogger("aliquot.agent")
"""One line for each step of a node's agent."""
controller_log = logging.getLogger("aliquot.controller")
"""One line for each thing the cluster's controller did or cannot do."""


class _Line(logging.Formatter):
    """``time="2026-01-02T03:04:05Z" level=info msg="..."``; a step marked ``plain`` is printed bare. Escape control
    characters in both: names from elsewhere are in them, and must neither begin a line nor control a terminal.
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
    """Send a log to stderr, as everything that is not a result."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if debug else logging.INFO)


class NewWarnings:
    """Warnings of what is so for as long as it is: ``current`` are the last ones, and each is logged when it comes."""

    def __init__(self, log: logging.Logger) -> None:
        self.current: tuple[str, ...] = ()
        self._log = log

    def update(self, sentences: tuple[str, ...]) -> None:
        """Log those of these that were not among the last ones."""
        for sentence in sentences:
            if sentence not in self.current:
                self._log.warning("%s", sentence)
        self.current = sentences


def plain(text: str) -> None:
    """A bare line: the few that people and scripts look for word by word."""
    agent_log.info("%s", text, extra={"plain": True})
