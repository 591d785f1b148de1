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
from typing import Literal, get_args

import msgspec

from aliquot.slurm.client.models import SlurmJob, SlurmNode, Version
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.request import QuietStep, SlurmStep

RELOADS = Version(23, 11)
"""From here on ``scontrol reconfigure`` starts every daemon anew; before, new GRES need a restart of both daemons."""

QUIET: tuple[SlurmStep, ...] = get_args(QuietStep)
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


def route(record: ChangeRecord) -> tuple[SlurmStep, ...]:
    """The steps of a change, in order."""
    middle = _dynamic() if record.kind == "dynamic" else _static(record)
    if record.undoing:
        if not record.touched:
            return ("explain",)
        if not record.restore_point.slurmd_start:
            # It never was registered: what was not there need not come back.
            return (*(step for step in middle if step != "start"), "explain")
        return (*middle, "verify", "explain")
    return ("drain", "wait", *middle, "verify", "resume")


def _dynamic() -> tuple[SlurmStep, ...]:
    return ("stop", "gpus", "files", "forget", "start")


def _static(record: ChangeRecord) -> tuple[SlurmStep, ...]:
    """A release that reads everything again at ``reconfigure`` keeps its slurmd, unless that must be started anew."""
    if version_of(record.version) < RELOADS:
        return ("stop", "gpus", "files", "tell", "start")
    return ("stop", "gpus", "files", "tell", "start") if record.restart else ("gpus", "files", "tell")


def phase_of(record: ChangeRecord) -> SlurmStep:
    """The step where the record stands; the first one where its route has no such step any more."""
    steps = route(record)
    return next((step for step in steps if step == record.phase), steps[0])


def next_step(record: ChangeRecord, observe: Callable[[], SlurmNodeObservation]) -> SlurmStep:
    """The step to do now; "" when all is done. Whatever the record says: nothing that jobs cannot live through is done
    on a node that takes jobs, or has some. ``observe`` asks Slurm, for those steps only.
    """
    phase = phase_of(record)
    if phase not in QUIET:
        return phase
    observation = observe()
    if observation.node is None or (observation.node.draining and not observation.busy):
        return phase
    return "wait" if observation.node.draining else "drain"


def following_step(record: ChangeRecord) -> SlurmStep | Literal[""]:
    """The step behind the record's own; "" behind the last. One done in between (see ``next_step``) moves nothing."""
    steps = route(record)
    n = steps.index(record.phase) if record.phase in steps else -1
    return steps[n + 1] if n + 1 < len(steps) else ""
