"""All GPUs of a Slurm node given one layout, with the files that follow, while Slurm itself keeps jobs away.

Two callers: the helper program of node_features/helpers (Slurm has given the node to the job that waits for the
change) and the start of a CLOUD record (nothing runs on the host). Neither drains: whoever else is on a GPU makes it
refuse. What fails is undone, the GPUs by the engine, the files by being written last.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from aliquot.core.model.catalog import Family
from aliquot.core.model.desired import Desired, DesiredGpu, DesiredInstance
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.errors import BlockedError
from aliquot.slurm.client import gres_text as grestext
from aliquot.slurm.conf import files as conf
from aliquot.slurm.conf.nodes import node_line
from aliquot.slurm.files import managed_block as block
from aliquot.slurm.layouts.families import FamilyError, FeatureLayout, current_layout
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import step_executor as acts
from aliquot.slurm.node.change_record import ChangeRecord, NodeRestorePoint
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.request import SlurmChange, SlurmNodeSettings


class GpuGroup(msgspec.Struct, frozen=True):
    """The GPUs that change together, all of one family."""

    family: Family
    gpus: tuple[Gpu, ...]

    @property
    def layout(self) -> FeatureLayout | None:
        """What they are in, all of them; None where no feature says it."""
        return current_layout(self.family, self.gpus)


def gpu_group(inventory: Inventory, pcis: Sequence[str] = ()) -> GpuGroup:
    """The GPUs by their addresses, all if none. Raises BlockedError where one of them cannot be cut, or they are of
    different families: a layout's name then means nothing for all of them.
    """
    gpus = tuple(g for g in inventory.gpus if not pcis or g.pci in pcis)
    if not gpus:
        raise BlockedError("there is no GPU that could change its layout", next_step="aliquot show")
    unfit = [f"GPU {g.index} ({g.product}): {why}" for g in gpus if (why := _unfit(g))]
    if unfit:
        raise BlockedError(
            f"not every GPU of this Slurm node can change its layout: {unfit[0]}",
            details=tuple(unfit[1:]),
            next_step="name those that can: --offers GPU",
        )
    kinds = {g.family: g.product for g in gpus}
    if len(kinds) > 1:
        raise BlockedError(
            f"one layout for {' and '.join(kinds.values())} does not exist: their profiles differ",
            next_step="name GPUs of one kind: --offers GPU",
        )
    return GpuGroup(inventory.family(gpus[0]), gpus)


def _unfit(gpu: Gpu) -> str:
    if not gpu.mig.capable or gpu.family is None:
        return "it cannot be divided"
    if gpu.lost:
        return "it has fallen off the bus"
    if gpu.passthrough:
        return "it is handed out whole"
    return "it carries vGPUs" if gpu.vgpus else ""


def desired(group: GpuGroup, layout: FeatureLayout) -> Desired:
    """The wish for a layout on all the GPUs, wherever the planner finds it best."""
    names = group.family.by_name
    wishes = tuple(DesiredInstance(names[p].id, p, (names[p].default_compute.id,)) for p in layout.profiles)
    return Desired(tuple(DesiredGpu(g.pci, True, wishes, source=layout.feature) for g in group.gpus), layout.feature)


def switch(
    layout: FeatureLayout,
    group: GpuGroup,
    settings: SlurmNodeSettings,
    context: SlurmChangeContext,
    *,
    typed: bool = True,
) -> ChangeRecord:
    """Cut the GPUs, make device nodes, write gres.conf's block and the map for tasks. Without ``typed`` the lines have
    no types: those of a node with ``Gres=gpu:6`` must not. Raises AliquotError; then the GPUs are as before.
    """
    inventory = context.gpus.backend.read()
    change = SlurmChange(settings, desired(group, layout))
    # "Dynamic" says that slurm.conf has nothing about this node that should change.
    record = ChangeRecord(
        run="switch",
        change=change,
        kind="dynamic",
        restore_point=NodeRestorePoint(
            desired=make_restore_point(inventory, tuple(g.pci for g in group.gpus)), lines=lines_now(settings)
        ),
    )
    made = acts.execute("gpus", record, context)
    if not typed:
        made = replace(made, expected=replace(made.expected, lines=tuple(map(untyped, made.expected.lines))))
    try:
        return acts.execute("files", made, context)
    except (Exception, KeyboardInterrupt):  # whatever it is, what was begun goes back
        context.report("the files could not be written: the GPUs go back")
        acts.execute("gpus", replace(record, undoing=True), context)
        raise


def lines_now(settings: SlurmNodeSettings) -> tuple[str, ...]:
    """The lines of our block in gres.conf, as they stand there."""
    path = os.path.join(settings.conf_dir, "gres.conf")
    mine = block.block_of(conf.text_of(path), settings.name) if os.path.exists(path) else None
    return mine.lines if mine else ()


def put_lines(settings: SlurmNodeSettings, lines: tuple[str, ...]) -> None:
    """Make the node's block in gres.conf say this; without lines it goes."""
    with files.locked(settings.conf_dir):
        files.write(files.gres_file(settings, lines, force=True, allow_other_lines=True))


def untyped(line: str) -> str:
    """A line of gres.conf without its type."""
    return " ".join(word for word in line.split() if not word.startswith("Type="))


def require_count(
    layout: FeatureLayout, group: GpuGroup, settings: SlurmNodeSettings, context: SlurmChangeContext
) -> None:
    """Raises FamilyError where Slurm has another number of devices for the node than it would have in a layout: the
    node would be INVALID and the job that waits for it be ended.
    """
    would = layout.devices * len(group.gpus)
    configured, where = _configured(settings, context)
    if configured != would:
        raise FamilyError(
            f"{layout} makes {would} devices on this node, and {where} says {configured}: Slurm would set the node "
            "INVALID, so nothing was changed",
            next_step="aliquot slurm families",
        )


def _configured(settings: SlurmNodeSettings, context: SlurmChangeContext) -> tuple[int, str]:
    """How many gpu GRES the node has for Slurm, and who says so: its line, else slurmctld."""
    path = os.path.join(settings.conf_dir, "slurm.conf")
    line = node_line(files.conf_of(settings), settings.name) if os.path.exists(path) else None
    gres = context.slurm.node(settings.name).gres if line is None else grestext.parse_configured(line.get("Gres"))
    where = str(line.statement.location) if line else "slurmctld"
    return sum(each.count for each in gres if each.name == "gpu"), where


__all__ = ["GpuGroup", "desired", "gpu_group", "lines_now", "put_lines", "require_count", "switch", "untyped"]
