"""The kernel's files of a simulated node, over its socket: what ``hardware.kernel_files`` is for a machine."""

from __future__ import annotations

import os
from typing import Any

from aliquot.foundation.driver_calls import Running
from aliquot.sim.client import Node


class SimFiles:
    """The Files port over a simulated node. Every method raises OSError with the simulated kernel's errno."""

    def __init__(self, node: Node, hand: bool = False) -> None:
        """``hand``: writes are those of somebody else, whom faults do not meet."""
        self._node = node
        self._hand = hand

    def _ask(self, op: str, path: str, data: str = "") -> Any:
        with Running(f"{op} {path}"):
            value, code = self._node.files(op, path, data, self._hand)
        if code:
            raise OSError(code, os.strerror(code), path)
        return value

    def read(self, path: str) -> str:
        return str(self._ask("read", path)).removesuffix("\n")

    def write(self, path: str, text: str) -> None:
        self._ask("write", path, text)

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(self._ask("names", path))

    def link(self, path: str) -> str:
        return str(self._ask("link", path))

    def real(self, path: str) -> str:
        return str(self._ask("real", path))

    def exists(self, path: str) -> bool:
        return bool(self._ask("exists", path))
