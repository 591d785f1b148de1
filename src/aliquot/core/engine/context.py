"""The ports of one node bundled, and what an apply answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Literal

import msgspec

from aliquot.core.config.boot_record import RecordedRequest
from aliquot.core.engine.ports import Backend, BootRecordStore, Clock, Hooks, HostControl, Journal, Lock, Workers
from aliquot.core.engine.step_timing import StepListener, ignore_step, timed
from aliquot.core.model.actions import Action
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Drift
from aliquot.errors import AliquotError
from aliquot.foundation.callbacks import Report


class NullBootRecordStore:
    """Wishes that nobody keeps."""

    def load(self) -> tuple[RecordedRequest, ...]:
        return ()

    def save(self, requests: Iterable[RecordedRequest]) -> None:
        return


def no_dependents(inventory: Inventory, report: Report) -> None:
    """Nothing follows a change."""


class ExecutionContext:
    """Everything outside: plain attributes, one per port. ``on_step`` is told each step, with how long it took;
    ``update_dependents`` brings what depends on the GPUs after a change, under its lock, and says what fails.
    """

    def __init__(
        self,
        backend: Backend,
        host: HostControl,
        journal: Journal,
        clock: Clock,
        lock: Lock,
        workers: Workers,
        hooks: Hooks,
        boot_record: BootRecordStore | None = None,
    ) -> None:
        self.backend = backend
        self.host = host
        self.journal = journal
        self.clock = clock
        self.lock = lock
        self.workers = workers
        self.hooks = hooks
        self.boot_record: BootRecordStore = boot_record or NullBootRecordStore()
        self.on_step: StepListener = ignore_step
        self.update_dependents: Callable[[Inventory, Report], None] = no_dependents

    def timed(self, step: str, action: Action | None = None) -> AbstractContextManager[None]:
        """Tells ``on_step`` how long what is inside took."""
        return timed(self.on_step, self.clock, step, action)


ApplyStatus = Literal["nothing", "done", "reboot", "undone", "stopped", "partial"]


class ApplyOutcome(msgspec.Struct, frozen=True):
    """What an apply came to.

    ``status``: ``nothing`` (the wish was satisfied, no call was made), ``done``, ``reboot`` (done as far as possible,
    the rest needs a reboot), ``undone`` (failed, and the former state is back), ``stopped`` (a signal
    asked for the end, and the former state is back), ``partial`` (failed, and not all of
    it could be undone: ``drift`` says what differs from the former state). ``calls`` counts the driver calls that
    change something.
    """

    status: ApplyStatus
    inventory: Inventory
    sentences: tuple[str, ...] = ()
    calls: int = 0
    drift: tuple[Drift, ...] = ()
    error: AliquotError | None = None
