"""The kernel's files of a simulated node, over its socket: the counterpart of ``hardware.kernel_files``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from aliquot.foundation.driver_calls import DriverCall
from aliquot.sim.client import SimClient

FileReads = tuple[tuple[str, str], ...]


class SimFiles:
    """The Files port over a simulated node. Every method raises OSError with the simulated kernel's errno."""

    def __init__(self, node: SimClient, hand: bool = False) -> None:
        """Open the files of a node. ``hand`` marks writes as manual, so faults do not apply."""
        self._node = node
        self._hand = hand

    def _request(self, op: str, path: str, data: str = "") -> Any:
        with DriverCall(f"{op} {path}"):
            value, code = self._node.files(op, path, data, self._hand)
        if code:
            raise OSError(code, os.strerror(code), path)
        return value

    def read(self, path: str) -> str:
        return str(self._request("read", path)).removesuffix("\n")

    def write(self, path: str, text: str) -> None:
        self._request("write", path, text)

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(self._request("names", path))

    def link(self, path: str) -> str:
        return str(self._request("link", path))

    def real(self, path: str) -> str:
        return str(self._request("real", path))

    def exists(self, path: str) -> bool:
        return bool(self._request("exists", path))

    def claimed(self, path: str) -> bool:
        return bool(self._request("claimed", path))


class PrefetchedFiles(SimFiles):
    """A ``SimFiles`` for one of many repeated reads of a node.

    It fetches the files of an earlier read of this node, or of a similar one (``prefetched``, from ``reads``), in one
    request, so that all values are of one moment. Missing files are read individually. Writes are passed through.
    """

    def __init__(self, node: SimClient, prefetched: Sequence[tuple[str, str]]) -> None:
        super().__init__(node)
        self._prefetched = prefetched
        self._known: dict[tuple[str, str], tuple[Any, int]] | None = None
        self._reads: dict[tuple[str, str], None] = {}

    @property
    def reads(self) -> FileReads:
        """The files that were read."""
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
