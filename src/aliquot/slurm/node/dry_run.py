"""What a change would do, with nothing touched: the plan for the GPUs, the files as they would be, the steps, the jobs.

The numbers that the driver gives to new instances are foretold, as the planner's own model gives them.
"""

from __future__ import annotations

import difflib
from typing import Literal

import msgspec
from msgspec.structs import replace

from aliquot.core.model.actions import Action
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.semantics import step
from aliquot.errors import StalePlanError
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import target
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import expected_gres
from aliquot.slurm.node.gpu_plan import feasible, freed
from aliquot.slurm.node.preconditions import prepare_change
from aliquot.slurm.node.request import SlurmChange
from aliquot.slurm.node.waits import job_lines, observe


class SlurmPreview(msgspec.Struct, frozen=True):
    """``status`` is ``nothing`` or ``would``. ``current_gres`` and ``gres`` are the node's GRES now and then, ``plan``
    what is done to the GPUs, ``files`` differences in the form of ``diff -u``, ``jobs`` those that must end first.
    """

    status: Literal["nothing", "would"]
    name: str
    node_kind: str = ""
    current_gres: str = msgspec.field(default="", name="has")
    gres: str = ""
    plan: Plan | None = None
    files: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def preview(change: SlurmChange, context: SlurmChangeContext) -> SlurmPreview:
    """Look, and say. Raises AliquotError where the change would be refused; jobs on the node are told, not refused."""
    name = change.settings.name
    record = prepare_change(replace(change, jobs="wait"), context, context.file.read())
    observation = observe(name, context)
    current_gres, jobs = ",".join(map(str, observation.node.gres)) if observation.node else "", observation.jobs
    if record is None:
        return SlurmPreview("nothing", name, current_gres=current_gres, gres=current_gres)
    now = context.gpus.backend.read()
    inventory = freed(now) if jobs else now
    made = feasible(change, inventory)
    record = replace(record, expected=expected_gres(foretold(inventory, made), record.change.settings, record.version))
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
        job_lines(jobs),
        record.expected.notes,
    )


def confirm(shown: SlurmPreview, now: SlurmPreview) -> None:
    """Raises MovedError where what is about to be done is not what a person was shown. Jobs may come and go meanwhile;
    where nothing is left to do, nothing is done.
    """
    if now.status == "nothing":
        return
    differs = {
        f"GRES: {shown.gres or 'none'} was shown, {now.gres or 'none'} would come": shown.gres != now.gres,
        f"steps: {' '.join(shown.steps) or 'none'} were shown, {' '.join(now.steps)} would be": shown.steps
        != now.steps,
        "GPUs: other changes would be made than those that were shown": _actions(shown) != _actions(now),
        "files: other lines would be written than those that were shown": shown.files != now.files,
    }
    if any(differs.values()):
        raise StalePlanError(
            f"{shown.name} is not as it was shown any more: nothing was changed",
            details=tuple(line for line, differ in differs.items() if differ),
            next_step="run the same command again: it shows what would be done now",
        )


def _actions(found: SlurmPreview) -> tuple[Action, ...]:
    return found.plan.actions if found.plan is not None else ()


def foretold(inventory: Inventory, made: Plan) -> Inventory:
    """The GPUs after a plan, with the minors of capabilities that new instances will have."""
    for action in made.actions:
        inventory = step(inventory, action)
    return replace(inventory, gpus=tuple(map(_numbered, inventory.gpus)))


def _numbered(gpu: Gpu) -> Gpu:
    """By the kernel's own counting; see ``files.job_devices``."""
    found = []
    for instance in gpu.instances:
        first = 3 + 135 * gpu.minor + 9 * instance.id
        inside = tuple(replace(c, capability_minor=first + 1 + c.id) for c in instance.compute_instances)
        found.append(replace(instance, capability_minor=first, compute_instances=inside))
    return replace(gpu, instances=tuple(found))


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


__all__ = ["SlurmPreview", "confirm", "foretold", "preview"]
