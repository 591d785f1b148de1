"""One node within reach, seen from the page: looked at and changed. Every call is synchronous, for a worker thread.

Each opens the node and closes it again: an open NVML session is a client like any other, and a page that somebody has
left open must not be what refuses a reset.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.config.boot_record import Kept
from aliquot.core.engine.ports import Record
from aliquot.core.engine.step_timing import Watch, unwatched
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.model.usage import Usage
from aliquot.errors import BlockedError, StorageError
from aliquot.foundation import driver_calls, paths

if TYPE_CHECKING:
    from aliquot.core.engine.context import Outcome
    from aliquot.dashboard.local.shared_cache import Habit
    from aliquot.hardware.state.current_run import Changing
    from aliquot.node.connect import Connection

Tell = Callable[[str], None]
Use = Callable[["Connection", Inventory], "tuple[Usage, ...]"]


class Seen(msgspec.Struct, frozen=True):
    """A fresh look at a node: what is, and what was asked of it last. ``fault`` says why the latter is not known.
    ``usage`` is None where nobody looked. ``begun`` is when the reading began (``time.monotonic``).
    """

    inventory: Inventory
    kept: tuple[Kept, ...] = ()
    fault: str = ""
    usage: tuple[Usage, ...] | None = None
    begun: float = 0.0


class Spot:
    """This machine (``node`` None), or a simulated node of a state directory. With a ``habit`` it is one of many: then
    the simulator is spoken to directly, else by whatever way ALIQUOT_BACKEND says.
    """

    def __init__(self, node: str | None, state_dir: str | None = None, habit: Habit | None = None) -> None:
        self.name = node or os.uname().nodename
        self.simulated = node is not None
        self._node = node
        self._state_dir = state_dir or paths.state_dir()
        self._habit = habit
        self._run, self.directory = paths.directories(node, self._state_dir)

    @property
    def lock(self) -> str:
        """The path of the node's lock."""
        return os.path.join(self._run, "lock")

    @property
    def journal(self) -> str:
        from aliquot.hardware.state.journal_reader import JOURNAL

        return os.path.join(self.directory, JOURNAL)

    @contextmanager
    def opened(self, by: str = "", *, looking: bool = False) -> Iterator[Connection]:
        """The node, open. ``by`` is for whom. What containers and jobs have counts as held. Raises what ``connect``
        raises.
        """
        from aliquot.node.claims import watch
        from aliquot.node.connect import connect
        from aliquot.slurm.holders import jobs

        through = "direct" if self._habit is not None else ""
        calm = looking and self._habit is not None and self._habit.calm(self.directory)
        try:
            with connect(self._node, state_dir=self._state_dir, through=through) as connection:
                if not calm:
                    watch(connection, (jobs.source,))
                connection.by = by
                yield connection
        except OSError as error:  # what lies beside the GPUs went away while it was read: a node that was stopped
            raise BlockedError(f"{self.name} cannot be reached: {error.strerror or error}") from error

    def look(self, *, use: Use | None = None) -> Seen:
        """``use`` reads what the pieces are used for. Raises whatever keeps the node from being read."""
        from aliquot.hardware.state.boot_record_file import FileWishes

        begun = time.monotonic()
        with self.opened(looking=True) as connection:
            with self._habit.reading(connection) if self._habit is not None else nullcontext():
                inventory = connection.backend.read()
            usage = use(connection, inventory) if use is not None else None
        try:
            return Seen(inventory, FileWishes(self.directory).load(), usage=usage, begun=begun)
        except StorageError as error:
            return Seen(inventory, fault=error.brief, usage=usage, begun=begun)

    def changing(self) -> Changing | None:
        """The change that is under way, whoever makes it. No GPU is asked."""
        from aliquot.foundation import lock
        from aliquot.hardware.state import current_run as changing
        from aliquot.hardware.state.journal_reader import last_run

        who = lock.holder(self.lock)
        if not who:
            return None
        try:
            found = last_run(self.journal)
        except StorageError:
            found = []
        return changing.told(who, found, lock.since(self.lock))

    def apply(self, plan: Plan, by: str, tell: Tell, watch: Watch = unwatched) -> Outcome:
        """``watch`` is told each step, ``tell`` also a driver call that hangs. Raises what ``engine.apply`` refuses to
        start, and whatever keeps the node from being opened.
        """
        from aliquot.core.engine.apply import apply
        from aliquot.foundation.call_watchdog import CallWatchdog

        with CallWatchdog(tell, driver_calls.hangs_s()), self.opened(by) as connection:
            world = connection.world()
            world.watch = watch
            return apply(plan, world, tell)

    def records(self) -> list[Record]:
        """The journal. Raises StorageError."""
        from aliquot.hardware.state.journal_reader import read

        return read(self.journal)
