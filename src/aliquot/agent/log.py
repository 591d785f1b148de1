"""The agent's log: one line a step, in the form that readers of mig-manager's log know."""

from __future__ import annotations

import logging
import sys
import time

log = logging.getLogger("aliquot.agent")


class _Line(logging.Formatter):
    """``time="2026-01-02T03:04:05Z" level=info msg="..."``; a step marked ``plain`` is printed bare."""

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if getattr(record, "plain", False):
            return text
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'time="{stamp}" level={record.levelname.lower()} msg="{quoted}"'


def start(*, debug: bool) -> None:
    """To stderr, as everything that is not a result."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if debug else logging.INFO)


def plain(text: str) -> None:
    """A bare line: the few that people and scripts look for word by word."""
    log.info("%s", text, extra={"plain": True})
