"""What a change would do, with nothing touched: the plan for the GPUs, the files as they would be, the steps, the jobs.

The numbers that the driver gives to new instances are foretold, as the planner's own model gives them.
"""

from __future__ import annotations

import difflib

import msgspec
from msgspec.structs import replace

from aliquot.core.model.actions import Action
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.semantics import step
from aliquot.errors import MovedError
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import target as aim
from aliquot.slurm.node.context import World
from aliquot.slurm.node.desired_gres import meant
from aliquot.slurm.node.gpu_plan import feasible, freed
from aliquot.slurm.node.preconditions import begin
from aliquot.slurm.node.request import WAIT, Change
from aliquot.slurm.node.waits import look, told


class Preview(msgspec.Struct, frozen=True):
    """``status`` is ``nothing`` or ``would``. ``has`` and ``gres`` are the node's GRES now and then, ``plan`` what is
    done to the GPUs, ``files`` differences in the form of ``diff -u``, ``jobs`` those that must end first.
    """

    status: str
    name: str
    node_kind: str = ""
    has: str = ""
    gres: str = ""
    plan: Plan | None = None
    files: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    jobs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def preview(change: Change, world: World) -> Preview:
    """Look, and say. Raises AliquotError where the change would be refused; jobs on the node are told, not refused."""
    name = change.settings.name
    record = begin(replace(change, jobs=WAIT), world, world.file.read())
    seen = look(name, world)
    has, jobs = ",".join(map(str, seen.node.gres)) if seen.node else "", seen.jobs
    if record is None:
        return Preview("nothing", name, has=has, gres=has)
    now = world.gpus.backend.read()
    inventory = freed(now) if jobs else now
    made = feasible(change, inventory)
    record = replace(record, meant=meant(foretold(inventory, made), record.change.settings, record.version))
    with files.alone(change.settings.conf_dir):
        differences = tuple(d for each in aim.wanted(record) if (d := _difference(each)))
    return Preview(
        "would",
        name,
        record.kind,
        has,
        aim.gres_text(record),
        made,
        differences,
        steps.route(record),
        told(jobs),
        record.meant.notes,
    )


def confirm(shown: Preview, now: Preview) -> None:
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
        raise MovedError(
            f"{shown.name} is not as it was shown any more: nothing was changed",
            details=tuple(line for line, differ in differs.items() if differ),
            next_step="run the same command again: it shows what would be done now",
        )


def _actions(found: Preview) -> tuple[Action, ...]:
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


def _difference(wanted: files.Wanted) -> str:
    lines = difflib.unified_diff(
        files.content(wanted.path).splitlines(), wanted.text.splitlines(), wanted.path, wanted.path, lineterm="", n=1
    )
    return "\n".join(lines)


__all__ = ["Preview", "confirm", "foretold", "preview"]
