"""What the pieces of a node's GPUs are used for, now: one function for agents, metrics, pages and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aliquot.core.model.usage import Usage

if TYPE_CHECKING:
    from aliquot.node.connect import Connection


def read_usage(connection: Connection, over_s: float = 0.0) -> tuple[Usage, ...]:
    """One entry per GPU instance that has a MIG device, one per whole GPU outside MIG mode; none for GPUs that are lost
    or handed out whole. It reads much less than a look at the GPUs does, writes nothing, and opens no session beside
    the connection's own.

    GPM's shares (Hopper and later) are of the time since this connection's last call, None at its first; ``over_s``
    makes a first call wait so many seconds for them. Raises what the driver's refusals mean.
    """
    return connection.backend.usage(over_s)
