"""Which step comes next: a function of the record and of what Slurm says now.

    drain    no new job starts            wait     for the jobs that run
    stop     slurmd                       gpus     the plan, by the engine
    files    gres.conf and its kin        forget   the dynamic record
    tell     slurmctld                    start    slurmd, which registers drained
    verify   types and counts             resume   the node, if it was we who drained it

On the way back the same steps put back what was; ``explain`` in the end leaves the node drained, with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from aliquot.slurm.client.models import SlurmJob, SlurmNode, Version
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.request import DYNAMIC

DRAIN, WAIT, STOP, GPUS, FILES, FORGET, UPDATE_CONTROLLER, START, VERIFY, RESUME, EXPLAIN = (
    "drain",
    "wait",
    "stop",
    "gpus",
    "files",
    "forget",
    "tell",
    "start",
    "verify",
    "resume",
    "explain",
)
RELOADS = Version(23, 11)
"""From here on ``scontrol reconfigure`` starts every daemon anew; before, new GRES need a restart of both daemons."""

QUIET = (STOP, GPUS, FILES, FORGET, UPDATE_CONTROLLER, START)
"""Steps that no job may live through."""


BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
"""States of a node with a job on it, or one that is not quite gone; a suspended job leaves none of them."""


class SlurmNodeObservation(msgspec.Struct, frozen=True):
    """What Slurm says now: the node, None where it has no such record, and the jobs that have resources on it, which
    were asked for at ``observed_at`` by the clock of the change.
    """

    node: SlurmNode | None
    jobs: tuple[SlurmJob, ...] = ()
    observed_at: float = 0.0

    @property
    def busy(self) -> bool:
        """Whether a job is there, or not quite gone."""
        states = self.node.states if self.node else frozenset()
        return bool(self.jobs or states & BUSY)


def version_of(text: str) -> Version:
    """A release from its text; 0.00.0 for text that is none."""
    numbers = [int(word) for word in text.split("-")[0].split(".")[:3] if word.isdigit()]
    return Version(*numbers) if len(numbers) >= 2 else Version(0, 0)


def route(record: ChangeRecord) -> tuple[str, ...]:
    """The steps of a change, in order."""
    middle = _dynamic() if record.kind == DYNAMIC else _static(record)
    if record.undoing:
        if not record.touched:
            return (EXPLAIN,)
        if not record.restore_point.slurmd_start:
            # It never was registered: what was not there need not come back.
            return (*(step for step in middle if step != START), EXPLAIN)
        return (*middle, VERIFY, EXPLAIN)
    return (DRAIN, WAIT, *middle, VERIFY, RESUME)


def _dynamic() -> tuple[str, ...]:
    return (STOP, GPUS, FILES, FORGET, START)


def _static(record: ChangeRecord) -> tuple[str, ...]:
    """A release that reads everything again at ``reconfigure`` keeps its slurmd, unless that must be started anew."""
    if version_of(record.version) < RELOADS:
        return (STOP, GPUS, FILES, UPDATE_CONTROLLER, START)
    return (STOP, GPUS, FILES, UPDATE_CONTROLLER, START) if record.restart else (GPUS, FILES, UPDATE_CONTROLLER)


def phase_of(record: ChangeRecord) -> str:
    """The step where the record stands; the first one where its route has no such step any more."""
    steps = route(record)
    return record.phase if record.phase in steps else steps[0]


def next_step(record: ChangeRecord, observe: Callable[[], SlurmNodeObservation]) -> str:
    """The step to do now; "" when all is done. Whatever the record says: nothing that jobs cannot live through is done
    on a node that takes jobs, or has some. ``observe`` asks Slurm, for those steps only.
    """
    phase = phase_of(record)
    if phase not in QUIET:
        return phase
    observation = observe()
    if observation.node is None or (observation.node.draining and not observation.busy):
        return phase
    return WAIT if observation.node.draining else DRAIN


def following_step(record: ChangeRecord) -> str:
    """The step behind the record's own; "" behind the last. One done in between (see ``next_step``) moves nothing."""
    steps = route(record)
    n = steps.index(record.phase) if record.phase in steps else -1
    return steps[n + 1] if n + 1 < len(steps) else ""
