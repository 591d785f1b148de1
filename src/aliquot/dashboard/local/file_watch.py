"""Watch of the files that a node's page shows besides the GPUs: its lock, and the record of its last request."""

from __future__ import annotations

import os
from collections.abc import Iterable

from aliquot.dashboard.local.node_access import NodeAccess
from aliquot.hardware.state.boot_record_file import FILE

Signature = tuple[int, int, bool]
_LOCKS = "/proc/locks"


class FileWatch:
    """Detects nodes to be read again although their GPUs did not change. Use it in one thread at a time."""

    def __init__(self) -> None:
        self._signatures: dict[str, Signature] = {}

    def remember(self, access: NodeAccess, held: frozenset[int] | None = None) -> None:
        """Remember the current files of a node, just before the node is read."""
        self._signatures[access.name] = _signature(access, locked_inodes() if held is None else held)

    def forget(self, name: str) -> None:
        self._signatures.pop(name, None)

    def changed(self, accesses: Iterable[NodeAccess]) -> list[str]:
        """Return the names of nodes whose files differ from those remembered."""
        held = locked_inodes()
        return [access.name for access in accesses if self._signatures.get(access.name) != _signature(access, held)]


def locked_inodes() -> frozenset[int]:
    """Return the inodes of all files locked with flock; empty if the kernel does not list them."""
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
