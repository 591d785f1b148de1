"""Slurm told of a node's new GRES: its files are distributed, and slurmctld reads them again or is started anew."""

from __future__ import annotations

import os

from msgspec.structs import replace

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import OldSlurmError
from aliquot.slurm.files import fence
from aliquot.slurm.files import managed_block as block
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import agrees
from aliquot.slurm.node.request import BY_HAND, SlurmNodeSettings
from aliquot.slurm.node.slurmd import run_shell

COMMAND_S = 300.0
"""The bound of --push and --slurmctld-restart."""


def update_controller(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Until slurmctld has it. Raises BlockedError where it does not, OldSlurmError where nobody may restart it."""
    settings = record.change.settings
    if settings.push:
        context.report("distributing the files")
        run_shell(settings.push, "--push", COMMAND_S, {"ALIQUOT_NODE_NAME": record.name})
    record = replace(record, started=waiting.another_second(record, context))
    context.save(record)
    if steps.version_of(record.version) >= steps.RELOADS:
        context.report("having Slurm read its files again")
        context.slurm.reconfigure()
        waiting.wait_for_controller(context)
        return record
    if not _controller_agrees(record, context):
        _restart_controller(record, context)
    return record


def _controller_agrees(record: ChangeRecord, context: SlurmChangeContext) -> bool:
    """Whether slurmctld has the new GRES. Of a node that is INVALID it shows what slurmd said, not what it asks for."""
    node = context.slurm.node(record.name)
    return agrees(node, record.expected.gres) and not node.invalid


def _restart_controller(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """A release before 23.11 takes other GRES only when slurmctld starts. Jobs live on."""
    command = record.change.settings.controller_restart
    if not command:
        raise needs_restart(record.version)
    if command == BY_HAND:
        context.report("restart slurmctld now: it is waited for")
        seconds = record.change.timeout_s
    else:
        context.report("restarting slurmctld")
        run_shell(command, "--slurmctld-restart", COMMAND_S, {"ALIQUOT_NODE_NAME": record.name})
        seconds = 30.0
    begin = context.now()
    while context.now() - begin <= seconds:
        waiting.wait_for_controller(context, seconds)
        if _controller_agrees(record, context):
            return
        context.sleep(waiting.POLL_S * 5)
    raise BlockedError(
        f"slurmctld does not have the new GRES of {record.name}",
        details=("was it restarted, and does it read the same slurm.conf (--push distributes it)?",),
        next_step="restart slurmctld, then run: aliquot slurm apply --continue",
    )


def needs_restart(version: str) -> OldSlurmError:
    """Why nothing can be done here without a restart of slurmctld."""
    return OldSlurmError(
        f"Slurm {version} takes other GRES of a static node only when slurmctld starts",
        details=(
            "from 23.11 on 'scontrol reconfigure' does it",
            "say how: --slurmctld-restart 'ssh CONTROLLER systemctl restart slurmctld' (jobs live on)",
            "or --slurmctld-restart by-hand: then it is said when, and waited for as long as --timeout",
            "a dynamic node (slurmd -Z) needs no restart of slurmctld on any release from 22.05 on",
        ),
        next_step="aliquot slurm apply --help",
    )


def hide_fences(settings: SlurmNodeSettings, context: SlurmChangeContext) -> None:
    """Have slurmctld forget the fences of this node and of those that share its gres.conf: reading its files again, it
    has learnt of all that stand in slurm.conf. Whoever may ask for a fence would be given the GPUs that it keeps jobs
    from. Raises as the port.
    """
    text = files.content(os.path.join(settings.conf_dir, "gres.conf"))
    fenced = {each.node for each in block.blocks(text) if fence.has_fence(each.lines)}
    if settings.name not in fenced:
        return
    for name in sorted(fenced):
        node = waiting.fetch_node(name, context)
        if node is not None and any(fence.is_fence(str(gres)) for gres in node.gres):
            context.slurm.describe(name, {"gres": fence.without_fence(",".join(map(str, node.gres)))})
