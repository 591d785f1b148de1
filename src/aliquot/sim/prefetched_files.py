"""The kernel's files of a simulated node for somebody who looks again and again: what was read last time is read by one
request, and the look is of one moment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from aliquot.sim.client import SimClient
from aliquot.sim.files import SimFiles

FileReads = tuple[tuple[str, str], ...]


class PrefetchedFiles(SimFiles):
    """See ``files.SimFiles``, for one look. ``prefetched`` is what an earlier look at this node, or one that is alike,
    has ``reads``; what is missing in it is read one by one. Writes go through.
    """

    def __init__(self, node: SimClient, prefetched: Sequence[tuple[str, str]]) -> None:
        super().__init__(node)
        self._prefetched = prefetched
        self._known: dict[tuple[str, str], tuple[Any, int]] | None = None
        self._reads: dict[tuple[str, str], None] = {}

    @property
    def reads(self) -> FileReads:
        """What this look has read."""
        return tuple(self._reads)

    def _request(self, op: str, path: str, data: str = "") -> Any:
        if op == "write":
            return super()._request(op, path, data)
        if self._known is None:
            answers = self._node.many_files(self._prefetched) if self._prefetched else []
            self._known = dict(zip(self._prefetched, answers, strict=True))
        found = self._known.get((op, path))
        if found is None:
            found = self._known[op, path] = self._node.files(op, path)
        self._reads[op, path] = None
        value, code = found
        if code:
            raise OSError(code, os.strerror(code), path)
        return value
