"""The kernel's files of a simulated node for somebody who looks again and again: what was read last time is read by one
request, and the look is of one moment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from aliquot.sim.client import Node
from aliquot.sim.files import SimFiles

Asks = tuple[tuple[str, str], ...]


class ForeseenFiles(SimFiles):
    """See ``files.SimFiles``, for one look. ``foreseen`` is what an earlier look at this node, or one that is alike,
    has ``asked``; what is missing in it is read one by one. Writes go through.
    """

    def __init__(self, node: Node, foreseen: Sequence[tuple[str, str]]) -> None:
        super().__init__(node)
        self._foreseen = foreseen
        self._known: dict[tuple[str, str], tuple[Any, int]] | None = None
        self._asked: dict[tuple[str, str], None] = {}

    @property
    def asked(self) -> Asks:
        """What this look has read."""
        return tuple(self._asked)

    def _ask(self, op: str, path: str, data: str = "") -> Any:
        if op == "write":
            return super()._ask(op, path, data)
        if self._known is None:
            answers = self._node.many_files(self._foreseen) if self._foreseen else []
            self._known = dict(zip(self._foreseen, answers, strict=True))
        found = self._known.get((op, path))
        if found is None:
            found = self._known[op, path] = self._node.files(op, path)
        self._asked[op, path] = None
        value, code = found
        if code:
            raise OSError(code, os.strerror(code), path)
        return value
