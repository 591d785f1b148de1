"""The next step of a change, as a function of the record and of Slurm's current state.

    drain    stop new jobs                wait     wait for the running jobs
    stop     stop slurmd                  gpus     apply the plan through the engine
    files    write gres.conf and others   forget   delete the dynamic record
    tell     update slurmctld             start    start slurmd, which registers drained
    verify   check types and counts       resume   resume the node, if we drained it

A change of idle slots beside running jobs drains nothing:

    wait     wait until the slots are idle    gate     reserve the node, and read which slots are idle
    release  delete the reservation

When a change is undone, the same steps restore the previous state. The last one, ``explain``, leaves the node drained
with a reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import msgspec
from msgspec.structs import replace

from aliquot.slurm.client.models import SlurmJob, SlurmNode, Version
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.request import QuietStep, SlurmStep

RELOADS = Version(23, 11)
"""From this release, ``scontrol reconfigure`` restarts every daemon. Before, new GRES need a restart of both."""

QUIET: tuple[SlurmStep, ...] = get_args(QuietStep)
"""Steps during which no job may run."""


BUSY = frozenset({"ALLOCATED", "MIXED", "COMPLETING"})
"""States of a node that has a running or completing job. A suspended job causes none of them."""


class SlurmNodeObservation(msgspec.Struct, frozen=True):
    """The state of a node in Slurm."""

    node: SlurmNode | None
    """None if Slurm has no such record."""
    jobs: tuple[SlurmJob, ...] = ()
    """The jobs that have resources on the node."""
    observed_at: float = 0.0
    """When the jobs were read, by the clock of the change."""

    @property
    def busy(self) -> bool:
        """True if a job is on the node or completing."""
        states = self.node.states if self.node else frozenset()
        return bool(self.jobs or states & BUSY)


def version_of(text: str) -> Version:
    """Parse a release; returns 0.00.0 for other text."""
    numbers = [int(word) for word in text.split("-")[0].split(".")[:3] if word.isdigit()]
    return Version(*numbers) if len(numbers) >= 2 else Version(0, 0)


def route(record: ChangeRecord) -> tuple[SlurmStep, ...]:
    """Return the steps of a change, in order."""
    if record.beside_jobs:
        return _beside_jobs(record)
    middle = _dynamic() if record.kind == "dynamic" else _static(record)
    if record.undoing:
        if not record.touched:
            return ("explain",)
        if not record.restore_point.slurmd_start:
            # The node was never registered before, so it need not come back.
            return (*(step for step in middle if step != "start"), "explain")
        return (*middle, "verify", "explain")
    return ("drain", "wait", *middle, "verify", "resume")


def _dynamic() -> tuple[SlurmStep, ...]:
    return ("stop", "gpus", "files", "forget", "start")


def _static(record: ChangeRecord) -> tuple[SlurmStep, ...]:
    """Return the middle steps for a static node. If ``reconfigure`` reads everything again, slurmd can keep running."""
    if version_of(record.version) < RELOADS:
        return ("stop", "gpus", "files", "tell", "start")
    return ("stop", "gpus", "files", "tell", "start") if record.restart else ("gpus", "files", "tell")


def _beside_jobs(record: ChangeRecord) -> tuple[SlurmStep, ...]:
    if record.undoing and not record.touched:
        return ("release",)
    rest: tuple[SlurmStep, ...] = ("gate", "gpus", "files", "tell", "verify", "release")
    return rest if record.undoing else ("wait", *rest)


def phase_of(record: ChangeRecord) -> SlurmStep:
    """Return the record's current step, or the first one if its route no longer has that step."""
    steps = route(record)
    return next((step for step in steps if step == record.phase), steps[0])


def next_step(record: ChangeRecord, observe: Callable[[], SlurmNodeObservation]) -> SlurmStep:
    """Return the step to execute now.

    Regardless of the record, no quiet step is executed on a node that takes jobs or has some. ``observe`` queries Slurm
    and is called only for quiet steps.
    """
    phase = phase_of(record)
    if phase not in QUIET:
        return phase
    observation = observe()
    if observation.node is None or (observation.node.draining and not observation.busy):
        return phase
    return "wait" if observation.node.draining else "drain"


def next_step_beside_jobs(record: ChangeRecord, is_gated: Callable[[], bool]) -> SlurmStep:
    """Return the step to execute now of a change beside running jobs.

    Regardless of the record, no quiet step is executed while a job could start on the node.
    """
    phase = phase_of(record)
    return phase if phase not in QUIET or is_gated() else "gate"


def resumed(record: ChangeRecord) -> ChangeRecord:
    """Return an interrupted change as it goes on.

    Beside running jobs, it reads the slots again before anything else changes: while nothing ran, someone may have
    deleted the reservation, and jobs may have started.
    """
    again = record.beside_jobs and record.phase in QUIET
    return replace(record, phase="gate") if again else record


def following_step(record: ChangeRecord) -> SlurmStep | Literal[""]:
    """Return the step after the record's current one; "" after the last.

    A step that ``next_step`` inserts does not change it.
    """
    steps = route(record)
    n = steps.index(record.phase) if record.phase in steps else -1
    return steps[n + 1] if n + 1 < len(steps) else ""
