"""The ports of one node bundled, and what an apply answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager

import msgspec

from aliquot.core.config.boot_record import Kept
from aliquot.core.engine.ports import Backend, Clock, Hooks, Host, Journal, Lock, Wishes, Workers
from aliquot.core.engine.step_timing import Watch, timed, unwatched
from aliquot.core.model.actions import Action
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Drift
from aliquot.errors import AliquotError

Report = Callable[[str], None]
"""Where progress goes, one line per act."""


class Unkept:
    """Wishes that nobody keeps."""

    def load(self) -> tuple[Kept, ...]:
        return ()

    def save(self, kept: Iterable[Kept]) -> None:
        return


def unfollowed(inventory: Inventory, report: Report) -> None:
    """Nothing follows a change."""


class World:
    """Everything outside: plain attributes, one per port. ``watch`` is told each step, with how long it took;
    ``follow`` brings what depends on the GPUs after a change, under its lock, and says what fails.
    """

    def __init__(
        self,
        backend: Backend,
        host: Host,
        journal: Journal,
        clock: Clock,
        lock: Lock,
        workers: Workers,
        hooks: Hooks,
        wishes: Wishes | None = None,
    ) -> None:
        self.backend = backend
        self.host = host
        self.journal = journal
        self.clock = clock
        self.lock = lock
        self.workers = workers
        self.hooks = hooks
        self.wishes: Wishes = wishes or Unkept()
        self.watch: Watch = unwatched
        self.follow: Callable[[Inventory, Report], None] = unfollowed

    def timed(self, step: str, action: Action | None = None) -> AbstractContextManager[None]:
        """Tells ``watch`` how long what is inside took."""
        return timed(self.watch, self.clock, step, action)


class Outcome(msgspec.Struct, frozen=True):
    """What an apply came to.

    ``status``: ``nothing`` (the wish was satisfied, no call was made), ``done``, ``reboot`` (done as far as possible,
    the rest needs a reboot), ``undone`` (failed, and the former state is back), ``stopped`` (a signal
    asked for the end, and the former state is back), ``partial`` (failed, and not all of
    it could be undone: ``drift`` says what differs from the former state). ``calls`` counts the driver calls that
    change something.
    """

    status: str
    inventory: Inventory
    sentences: tuple[str, ...] = ()
    calls: int = 0
    drift: tuple[Drift, ...] = ()
    error: AliquotError | None = None
