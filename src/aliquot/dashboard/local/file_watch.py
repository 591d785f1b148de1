"""What lies beside a node's GPUs and is shown too: its lock, and the record of what was asked of it last."""

from __future__ import annotations

import os
from collections.abc import Iterable

from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.hardware.state.boot_record_file import FILE

Signature = tuple[int, int, bool]
_LOCKS = "/proc/locks"


class FileWatch:
    """Which nodes are to be looked at again although nothing happened to their GPUs. For one thread at a time."""

    def __init__(self) -> None:
        self._signatures: dict[str, Signature] = {}

    def remember(self, access: NodeAccess, held: frozenset[int] | None = None) -> None:
        """A look is taken now: what is there before it is known."""
        self._signatures[access.name] = _signature(access, locked_inodes() if held is None else held)

    def forget(self, name: str) -> None:
        self._signatures.pop(name, None)

    def changed(self, accesses: Iterable[NodeAccess]) -> list[str]:
        """The names of nodes whose signs are not those that were noted."""
        held = locked_inodes()
        return [access.name for access in accesses if self._signatures.get(access.name) != _signature(access, held)]


def locked_inodes() -> frozenset[int]:
    """Of the files that anybody holds with flock, as the kernel tells it. None where it does not."""
    try:
        with open(_LOCKS) as file:
            lines = [line.split() for line in file]
    except OSError:
        return frozenset()
    return frozenset(int(w[5].rpartition(":")[2]) for w in lines if len(w) > 5 and w[1] == "FLOCK")


def _signature(access: NodeAccess, held: frozenset[int]) -> Signature:
    try:
        facts = os.stat(os.path.join(access.directory, FILE))
        recorded = facts.st_ino, facts.st_mtime_ns
    except OSError:
        recorded = 0, 0
    try:
        locked = os.stat(access.lock).st_ino in held
    except OSError:
        locked = False
    return (*recorded, locked)
