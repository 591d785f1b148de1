"""The kernel's files of a simulated node, over its socket: what ``hardware.kernel_files`` is for a machine."""

from __future__ import annotations

import os
from typing import Any

from aliquot.foundation.driver_calls import DriverCall
from aliquot.sim.client import SimClient


class SimFiles:
    """The Files port over a simulated node. Every method raises OSError with the simulated kernel's errno."""

    def __init__(self, node: SimClient, hand: bool = False) -> None:
        """``hand``: writes are those of somebody else, whom faults do not meet."""
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
