"""The owner of a pause: which agent took operands or host services away, and who may give them back."""

from __future__ import annotations

import msgspec


class PauseOwner(msgspec.Struct, frozen=True, omit_defaults=True):
    """One agent process. ``agent`` is its random id, ``lock`` the file of the lock that it holds for its life (device
    and inode), ``boot`` the boot of its node, ``name`` what a person finds it by.
    """

    agent: str = ""
    lock: str = ""
    boot: str = ""
    name: str = ""

    def may_undo(self, other: PauseOwner | None) -> bool:
        """True if this agent may give back what ``other`` paused: its own, and what a dead agent left.

        One that held the lock that this agent holds now has ended, and so has one of an earlier boot. ``other`` is None
        in records of versions that named no owner: those agents gave back everything that they found.
        """
        if other is None or other.agent == self.agent:
            return True
        return bool(self.lock) and (other.boot != self.boot or other.lock == self.lock)
