"""Switches all GPUs of a Slurm node to one layout, and writes the files, while Slurm itself keeps jobs away.

It has two callers. For the helper program of node_features/helpers, Slurm has allocated the node to the job that waits
for the change. At the start of a CLOUD record, nothing runs on the host. Neither drains: if a GPU is held, the switch
is refused. After a failure, the engine restores the GPUs; the files are written last.
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
from aliquot.slurm.node import step_executor as executor
from aliquot.slurm.node.change_record import ChangeRecord, NodeRestorePoint
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.request import SlurmChange, SlurmNodeSettings


class GpuGroup(msgspec.Struct, frozen=True):
    """GPUs of one family that change together."""

    family: Family
    gpus: tuple[Gpu, ...]

    @property
    def layout(self) -> FeatureLayout | None:
        """The current layout of all GPUs; None if no feature describes it."""
        return current_layout(self.family, self.gpus)


def gpu_group(inventory: Inventory, pcis: Sequence[str] = ()) -> GpuGroup:
    """Return the group of GPUs with these PCI addresses; empty means all.

    Raises BlockedError if one of them cannot be partitioned, or if their families differ, so that no layout suits all.
    """
    gpus = tuple(g for g in inventory.gpus if not pcis or g.pci in pcis)
    if not gpus:
        raise BlockedError(
            "this Slurm node has no GPU that can change its layout", code="NO_LAYOUT", next_step="aliquot show"
        )
    unfit = [f"GPU {g.index} ({g.product}): {why}" for g in gpus if (why := _unfit(g))]
    if unfit:
        raise BlockedError(
            f"not every GPU of this Slurm node can change its layout: {unfit[0]}",
            code="NO_LAYOUT",
            details=tuple(unfit[1:]),
            next_step="name the GPUs that can: --capacity GPU",
        )
    kinds = {g.family: g.product for g in gpus}
    if len(kinds) > 1:
        raise BlockedError(
            f"no layout suits {' and '.join(kinds.values())}: their profiles differ",
            code="NO_LAYOUT",
            next_step="name GPUs of one kind: --capacity GPU",
        )
    return GpuGroup(inventory.family(gpus[0]), gpus)


def _unfit(gpu: Gpu) -> str:
    if not gpu.mig.capable or gpu.family is None:
        return "it does not support MIG"
    if gpu.lost:
        return "it has fallen off the bus"
    if gpu.passthrough:
        return "it is passed through to a VM"
    return "it hosts vGPUs" if gpu.vgpus else ""


def desired(group: GpuGroup, layout: FeatureLayout) -> Desired:
    """Build the desired state for a layout on all GPUs of a group; the planner chooses the placements."""
    names = group.family.by_name
    requests = tuple(DesiredInstance(names[p].id, p, (names[p].default_compute.id,)) for p in layout.profiles)
    return Desired(tuple(DesiredGpu(g.pci, True, requests, source=layout.feature) for g in group.gpus), layout.feature)


def switch(
    layout: FeatureLayout,
    group: GpuGroup,
    settings: SlurmNodeSettings,
    context: SlurmChangeContext,
    *,
    typed: bool = True,
) -> ChangeRecord:
    """Partition the GPUs, create device nodes, and write the managed block of gres.conf and the numbering for tasks.

    Without ``typed``, the lines have no types, as required for a node with ``Gres=gpu:6``. Raises AliquotError; then
    the GPUs are as before.
    """
    inventory = context.gpus.backend.read()
    change = SlurmChange(settings, desired(group, layout))
    # "dynamic" means that nothing in slurm.conf changes for this node.
    record = ChangeRecord(
        run="switch",
        change=change,
        kind="dynamic",
        restore_point=NodeRestorePoint(
            desired=make_restore_point(inventory, tuple(g.pci for g in group.gpus)), lines=lines_now(settings)
        ),
    )
    made = executor.execute("gpus", record, context)
    if not typed:
        made = replace(made, expected=replace(made.expected, lines=tuple(map(untyped, made.expected.lines))))
    try:
        return executor.execute("files", made, context)
    except (Exception, KeyboardInterrupt):  # restore the GPUs after any failure
        context.report("cannot write the files: restoring the GPUs")
        executor.execute("gpus", replace(record, undoing=True), context)
        raise


def lines_now(settings: SlurmNodeSettings) -> tuple[str, ...]:
    """Return the current lines of our managed block in gres.conf."""
    path = os.path.join(settings.conf_dir, "gres.conf")
    mine = block.block_of(conf.text_of(path), settings.name) if os.path.exists(path) else None
    return mine.lines if mine else ()


def put_lines(settings: SlurmNodeSettings, lines: tuple[str, ...]) -> None:
    """Replace the node's block in gres.conf; without lines it is removed."""
    with files.locked(settings.conf_dir):
        files.write(files.gres_file(settings, lines, force=True, allow_other_lines=True))


def untyped(line: str) -> str:
    """Return a line of gres.conf without its type."""
    return " ".join(word for word in line.split() if not word.startswith("Type="))


def require_count(
    layout: FeatureLayout, group: GpuGroup, settings: SlurmNodeSettings, context: SlurmChangeContext
) -> None:
    """Raise FamilyError if a layout has another number of devices than Slurm expects for the node.

    Slurm would set the node INVALID and end the job that waits for it.
    """
    would = layout.devices * len(group.gpus)
    configured, where = _configured(settings, context)
    if configured != would:
        raise FamilyError(
            f"{layout} has {would} devices on this node, but {where} says {configured}: Slurm would set the node "
            "INVALID, so nothing was changed",
            next_step="aliquot slurm families",
        )


def _configured(settings: SlurmNodeSettings, context: SlurmChangeContext) -> tuple[int, str]:
    """Return how many gpu GRES are configured for the node, and the source: its line, else slurmctld."""
    path = os.path.join(settings.conf_dir, "slurm.conf")
    line = node_line(files.conf_of(settings), settings.name) if os.path.exists(path) else None
    gres = context.slurm.node(settings.name).gres if line is None else grestext.parse_configured(line.get("Gres"))
    where = str(line.statement.location) if line else "slurmctld"
    return sum(each.count for each in gres if each.name == "gpu"), where


__all__ = ["GpuGroup", "desired", "gpu_group", "lines_now", "put_lines", "require_count", "switch", "untyped"]
