"""The ports of one node together, and the outcome of an apply."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import msgspec

from aliquot.core.engine.ports import (
    ApplyStatus,
    Backend,
    BootRecordStore,
    Clock,
    Hooks,
    HostControl,
    Journal,
    Lock,
    Workers,
)
from aliquot.core.engine.step_timing import StepListener, ignore_step, timed
from aliquot.core.model.actions import Action
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Drift
from aliquot.errors import AliquotError
from aliquot.foundation.callbacks import Report


class NullBootRecordStore:
    """A store that records nothing."""

    def record(self, desired: Desired, after: Inventory) -> None:
        return


def no_dependents(inventory: Inventory, report: Report) -> None:
    """Update nothing after a change."""


class ExecutionContext(msgspec.Struct, frozen=True, eq=False):
    """The outside of the engine, one attribute per port. ``on_step`` receives each step with its duration;
    ``update_dependents`` updates what depends on the GPUs after a change, under its lock, and reports failures.
    """

    backend: Backend
    host: HostControl
    journal: Journal
    clock: Clock
    lock: Lock
    workers: Workers
    hooks: Hooks
    boot_record: BootRecordStore = msgspec.field(default_factory=NullBootRecordStore)
    on_step: StepListener = ignore_step
    update_dependents: Callable[[Inventory, Report], None] = no_dependents

    def timed(self, step: str, action: Action | None = None) -> AbstractContextManager[None]:
        """Measure the block and report its duration to ``on_step``."""
        return timed(self.on_step, self.clock, step, action)


class ApplyOutcome(msgspec.Struct, frozen=True):
    """The outcome of an apply."""

    status: ApplyStatus
    """One of:

    - ``nothing``: the desired state was already satisfied, no call was made
    - ``done``
    - ``reboot``: done as far as possible, the rest needs a reboot
    - ``undone``: failed, and the previous state is restored
    - ``stopped``: ended by a signal, and the previous state is restored
    - ``partial``: failed, and not everything could be undone
    """
    inventory: Inventory
    sentences: tuple[str, ...] = ()
    calls: int = 0
    """Driver calls that change something."""
    drift: tuple[Drift, ...] = ()
    """With ``partial``: the differences from the previous state."""
    error: AliquotError | None = None
