"""Updates slurmctld with a node's new GRES: distribute the files, then reconfigure or restart slurmctld."""

from __future__ import annotations

import os
from contextlib import suppress

from msgspec.structs import replace

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import OldSlurmError, SlurmUnavailableError
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
"""Time limit of --push and --slurmctld-restart in seconds."""


def update_controller(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Wait until slurmctld has the new GRES.

    Raises BlockedError if it does not get them, and OldSlurmError if it needs a restart that is not permitted.
    """
    push_files(record, context)
    record = replace(record, started=waiting.another_second(record, context))
    context.save(record)
    if reads_again(record):
        context.report("reconfiguring Slurm")
        context.slurm.reconfigure()
        waiting.wait_for_controller(context)
        return record
    # Equal counts do not show whether the records of a slot board have their new types.
    if record.goal_settings.slots or not _controller_agrees(record, context):
        _restart_controller(record, context)
    return record


def reads_again(record: ChangeRecord) -> bool:
    """Report whether ``scontrol reconfigure`` is enough for new GRES of a static node."""
    return steps.version_of(record.version) >= steps.RELOADS


def push_files(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Copy the files to the other nodes, if there is a command for that. Raises BlockedError."""
    settings = record.change.settings
    if settings.push:
        context.report("distributing the files")
        run_shell(settings.push, "--push", COMMAND_S, {"ALIQUOT_NODE_NAME": record.name})


def answering_nodes(context: SlurmChangeContext) -> frozenset[str]:
    """Return the names of the nodes whose slurmd is registered and responds. Empty if slurmctld does not answer."""
    with suppress(SlurmUnavailableError):
        return frozenset(node.name for node in context.slurm.nodes() if node.answers)
    return frozenset()


def restart_controller(record: ChangeRecord, options: str = "") -> None:
    """Run the command that restarts slurmctld, which may pass on options for this start. Raises BlockedError."""
    command = record.change.settings.controller_restart
    variables = {"ALIQUOT_NODE_NAME": record.name, "ALIQUOT_SLURMCTLD_OPTIONS": options}
    run_shell(command, "--slurmctld-restart", COMMAND_S, variables)


def report_forgotten(record: ChangeRecord, answered: frozenset[str], context: SlurmChangeContext) -> None:
    """Report the other nodes that answered before a restart of slurmctld and have no state after it.

    slurmctld 22.05 forgets the states of nodes when it starts without -R (see ``restart_gate``).
    """
    try:
        now = {node.name: node.states for node in context.slurm.nodes()}
    except SlurmUnavailableError:
        return  # the next step waits for slurmctld
    forgotten = sorted(name for name in answered - {record.name} if "UNKNOWN" in now.get(name, ()))
    if forgotten:
        more = f" and {len(forgotten) - 1} more" if len(forgotten) > 1 else ""
        context.report(
            f"note: slurmctld forgot the state of {forgotten[0]}{more} when it restarted. For some 4 s, new steps of "
            "running jobs there fail or wait for a minute"
        )


def _controller_agrees(record: ChangeRecord, context: SlurmChangeContext) -> bool:
    """Report whether slurmctld has the new GRES. For an INVALID node it shows what slurmd registered instead."""
    node = context.slurm.node(record.name)
    return agrees(node, record.expected.gres) and not node.invalid


def _restart_controller(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Restart slurmctld, which releases before 23.11 need for new GRES. Jobs continue."""
    command = record.change.settings.controller_restart
    if not command:
        raise needs_restart(record.version)
    if command == BY_HAND:
        context.report("restart slurmctld now; waiting for it")
        seconds = record.change.timeout_s
    else:
        context.report("restarting slurmctld")
        answered = answering_nodes(context)
        restart_controller(record)
        seconds = 30.0
        waiting.wait_for_controller(context, seconds)
        report_forgotten(record, answered, context)
    begin = context.now()
    while context.now() - begin <= seconds:
        waiting.wait_for_controller(context, seconds)
        if _controller_agrees(record, context):
            return
        context.sleep(waiting.POLL_S * 5)
    raise BlockedError(
        f"slurmctld does not have the new GRES of {record.name}",
        code="NOT_RECONFIGURED",
        details=("Check that it was restarted, and that it reads the same slurm.conf (--push distributes it).",),
        next_step="restart slurmctld, then run: aliquot slurm apply --continue",
    )


def needs_restart(version: str) -> OldSlurmError:
    """Return the error for a change that needs a restart of slurmctld."""
    return OldSlurmError(
        f"Slurm {version} reads new GRES of a static node only when slurmctld starts",
        details=(
            "From 23.11, 'scontrol reconfigure' is enough.",
            "Give a command: --slurmctld-restart 'ssh CONTROLLER systemctl restart slurmctld' (jobs continue)",
            "Or restart it manually with --slurmctld-restart by-hand, when asked, within --timeout.",
            "A dynamic node (slurmd -Z) needs no restart of slurmctld in any release from 22.05.",
        ),
        next_step="aliquot slurm apply --help",
    )


def hide_fences(settings: SlurmNodeSettings, context: SlurmChangeContext) -> None:
    """Remove the fences of this node, and of those that share its gres.conf, from slurmctld's records.

    After reading its files again, slurmctld has all fences in slurm.conf. A job that requested a fence would get the
    GPUs behind it. Raises as the port.
    """
    text = files.content(os.path.join(settings.conf_dir, "gres.conf"))
    fenced = {each.node for each in block.blocks(text) if fence.has_fence(each.lines)}
    if settings.name not in fenced:
        return
    for name in sorted(fenced):
        node = waiting.fetch_node(name, context)
        if node is not None and any(fence.is_fence(str(gres)) for gres in node.gres):
            context.slurm.describe(name, {"gres": fence.without_fence(",".join(map(str, node.gres)))})
