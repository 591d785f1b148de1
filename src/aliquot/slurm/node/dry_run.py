"""Preview of a change, which touches nothing: the plan for the GPUs, the new files, the steps, and the jobs.

The planner's model predicts the ids that the driver will give to new instances.
"""

from __future__ import annotations

import difflib
from typing import Literal

import msgspec
from msgspec.structs import replace

from aliquot.core.model.actions import Action
from aliquot.core.model.plan import Plan
from aliquot.errors import StalePlanError
from aliquot.slurm.client.models import SlurmJob
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import target
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import expected_gres
from aliquot.slurm.node.gpu_plan import feasible, foretold, freed
from aliquot.slurm.node.preconditions import prepare_change
from aliquot.slurm.node.request import SlurmChange
from aliquot.slurm.node.slot_plan import slot_plan
from aliquot.slurm.node.slot_use import used_slots
from aliquot.slurm.node.waits import job_lines, observe


class SlurmPreview(msgspec.Struct, frozen=True):
    """The preview of a change."""

    status: Literal["nothing", "would"]
    name: str
    node_kind: str = ""
    current_gres: str = msgspec.field(default="", name="has")
    """The node's GRES before the change."""
    gres: str = ""
    """The node's GRES after the change."""
    plan: Plan | None = None
    """The plan for the GPUs."""
    files: tuple[str, ...] = ()
    """The differences of files, as of ``diff -u``."""
    steps: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    """The jobs that must end first."""
    notes: tuple[str, ...] = ()


def preview(change: SlurmChange, context: SlurmChangeContext) -> SlurmPreview:
    """Return the preview of a change. Raises AliquotError if it would be refused; jobs are only reported."""
    name = change.settings.name
    record = prepare_change(replace(change, jobs="wait"), context, context.file.read())
    observation = observe(name, context)
    current_gres, jobs = ",".join(map(str, observation.node.gres)) if observation.node else "", observation.jobs
    if record is None:
        return SlurmPreview("nothing", name, current_gres=current_gres, gres=current_gres)
    record, made, blocking = _prediction(record, jobs, context)
    with files.locked(change.settings.conf_dir):
        differences = tuple(d for each in target.desired_files(record) if (d := _difference(each)))
    return SlurmPreview(
        "would",
        name,
        record.kind,
        current_gres,
        target.gres_text(record),
        made,
        differences,
        steps.route(record),
        job_lines(blocking),
        (*record.expected.notes, *record.dropped),
    )


def _prediction(
    record: ChangeRecord, jobs: tuple[SlurmJob, ...], context: SlurmChangeContext
) -> tuple[ChangeRecord, Plan, tuple[SlurmJob, ...]]:
    """Return the record with the expected GRES, the plan for the GPUs, and the jobs that must end first."""
    now = context.gpus.backend.read()
    if record.beside_jobs:
        found = slot_plan(record, now, used_slots(record.name, context))
        record = replace(record, expected=found.expected, dropped=found.dropped)
        return record, found.plan, tuple(job for job in jobs if job.id in found.jobs)
    inventory = freed(now) if jobs else now
    made = feasible(record.change, inventory)
    expected = expected_gres(foretold(inventory, made), record.goal_settings, record.version)
    return replace(record, expected=expected), made, jobs


def confirm(shown: SlurmPreview, now: SlurmPreview) -> None:
    """Raise StalePlanError if the change differs from the preview that the user confirmed.

    Jobs may come and go in the meantime. If nothing is left to do, nothing is raised.
    """
    if now.status == "nothing":
        return
    differs = {
        f"GRES: the preview had {shown.gres or 'none'}, now it is {now.gres or 'none'}": shown.gres != now.gres,
        f"steps: the preview had {' '.join(shown.steps) or 'none'}, now they are {' '.join(now.steps)}": shown.steps
        != now.steps,
        "GPUs: the changes differ from the preview": _actions(shown) != _actions(now),
        "files: the lines differ from the preview": shown.files != now.files,
    }
    if any(differs.values()):
        raise StalePlanError(
            f"{shown.name} has changed since the preview: nothing was done",
            details=tuple(line for line, differ in differs.items() if differ),
            next_step="run the same command again for a new preview",
        )


def _actions(found: SlurmPreview) -> tuple[Action, ...]:
    return found.plan.actions if found.plan is not None else ()


def _difference(desired: files.DesiredFile) -> str:
    lines = difflib.unified_diff(
        files.content(desired.path).splitlines(),
        desired.text.splitlines(),
        desired.path,
        desired.path,
        lineterm="",
        n=1,
    )
    return "\n".join(lines)


__all__ = ["SlurmPreview", "confirm", "preview"]
