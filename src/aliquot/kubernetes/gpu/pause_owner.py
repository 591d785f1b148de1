"""Owner of a pause: the agent that paused operands or host services, and the agents that may resume them."""

from __future__ import annotations

import msgspec


class PauseOwner(msgspec.Struct, frozen=True, omit_defaults=True):
    """An agent process."""

    agent: str = ""
    """Random id."""
    lock: str = ""
    """Device and inode of the lock file that the process holds until it ends."""
    boot: str = ""
    """Boot id of the node."""
    name: str = ""
    """Name for people."""

    def may_undo(self, other: PauseOwner | None) -> bool:
        """Report whether this agent may undo a pause of ``other``: its own, or that of an agent that has ended.

        An agent has ended if it held the lock that this agent holds now, or if it is of an earlier boot. ``other`` is
        None in records of versions without owners, whose agents undid every pause that they found.
        """
        if other is None or other.agent == self.agent:
            return True
        return bool(self.lock) and (other.boot != self.boot or other.lock == self.lock)
