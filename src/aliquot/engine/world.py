"""The ports of one node bundled, and what an apply answers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.engine.ports import Backend, Clock, Hooks, Host, Journal, Lock, Workers
from aliquot.errors import AliquotError
from aliquot.model.inventory import Inventory
from aliquot.model.plan import Drift

Report = Callable[[str], None]
"""Where progress goes, one line per act."""


class World:
    """Everything outside: plain attributes, one per port."""

    def __init__(
        self, backend: Backend, host: Host, journal: Journal, clock: Clock, lock: Lock, workers: Workers, hooks: Hooks
    ) -> None:
        self.backend = backend
        self.host = host
        self.journal = journal
        self.clock = clock
        self.lock = lock
        self.workers = workers
        self.hooks = hooks


class Outcome(msgspec.Struct, frozen=True):
    """What an apply came to.

    ``status``: ``nothing`` (the wish was satisfied, no call was made), ``done``, ``reboot`` (done as far as possible,
    the rest needs a reboot), ``undone`` (failed, and the former state is back), ``partial`` (failed, and not all of
    it could be undone: ``drift`` says what differs from the former state). ``calls`` counts the driver calls that
    change something.
    """

    status: str
    inventory: Inventory
    sentences: tuple[str, ...] = ()
    calls: int = 0
    drift: tuple[Drift, ...] = ()
    error: AliquotError | None = None
