"""Lock of an agent's role: of two agents of one role on a node, one works and the other waits for its end.

An agent holds this lock for its lifetime. The change lock is another one, which each writer takes for a single change.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from contextlib import ExitStack

from aliquot.errors import AliquotError, LockedError
from aliquot.foundation.event_wait import wait_for_event
from aliquot.foundation.lock import FileLock
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.gpu.pause_owner import PauseOwner

POLL_S = 1.0
"""Seconds within which a waiting agent takes over after the end of the other."""


class RoleLock:
    """Lock of an agent's role.

    ``name`` is the role, for example "label agent". ``directory`` holds the node's locks. ``pod`` is this agent's pod
    as ``namespace/name``; empty outside a pod. ``waiting`` is why the lock is not held yet; empty once it is.
    """

    def __init__(self, name: str, directory: str, pod: str) -> None:
        self.waiting = "it is starting"
        self.place = f"pod {pod}" if pod else ""
        path = os.path.join(directory, f"{name.replace(' ', '-')}.lock")
        self._lock = FileLock(path, f"is the {name} of this node", place=self.place)
        self._held = ExitStack()

    async def take(self, stopping: asyncio.Event) -> bool:
        """Wait for the lock, or until ``stopping`` is set. Returns whether it is held. The reason is logged once."""
        logged = ""
        while not stopping.is_set():
            try:
                self._held.enter_context(self._lock.hold())
            except AliquotError as error:
                self.waiting = _reason(error)
            else:
                self.waiting = ""
                if logged:
                    log.info("the other agent has ended: this agent takes over")
                return True
            if self.waiting != logged:
                log.warning("%s", self.waiting)
                logged = self.waiting
            await wait_for_event(stopping, POLL_S)
        return False

    def owner(self, boot: str) -> PauseOwner:
        """Return the owner for this agent's pauses, once it holds the lock."""
        name = f"process {os.getpid()}{f' of {self.place}' if self.place else ''}"
        return PauseOwner(secrets.token_hex(8), self._lock.identity, boot, name)

    def close(self) -> None:
        """Release the lock for the next agent."""
        self._held.close()


def _reason(error: AliquotError) -> str:
    if isinstance(error, LockedError):
        return f"{error.brief}: this agent changes and publishes nothing until that one ends"
    return error.one_line
