"""The controller's log: one line for each thing it did or cannot do, on stderr."""

from __future__ import annotations

import logging
import sys
import time

log = logging.getLogger("aliquot.controller")


class _Line(logging.Formatter):
    """``time="2026-01-02T03:04:05Z" level=info msg="..."``, as the agent's."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(record.created))
        quoted = record.getMessage().replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'time="{stamp}" level={record.levelname.lower()} msg="{quoted}"'


def start(*, debug: bool) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line())
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if debug else logging.INFO)
