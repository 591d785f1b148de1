"""Slurm told of a node's new GRES: its files are distributed, and slurmctld reads them again or is started anew."""

from __future__ import annotations

from msgspec.structs import replace

from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import OldSlurmError
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import Record
from aliquot.slurm.node.context import World
from aliquot.slurm.node.desired_gres import agrees
from aliquot.slurm.node.request import BY_HAND
from aliquot.slurm.node.slurmd import shell

COMMAND_S = 300.0
"""The bound of --push and --slurmctld-restart."""


def tell(record: Record, world: World) -> Record:
    """Until slurmctld has it. Raises BlockedError where it does not, OldSlurmError where nobody may restart it."""
    settings = record.change.settings
    if settings.push:
        world.say("distributing the files")
        shell(settings.push, "--push", COMMAND_S, {"ALIQUOT_NODE_NAME": record.name})
    record = replace(record, started=waiting.another_second(record, world))
    world.keep(record)
    if steps.version_of(record.version) >= steps.RELOADS:
        world.say("having Slurm read its files again")
        world.slurm.reconfigure()
        waiting.answering(world)
        return record
    if not _known(record, world):
        _restart_controller(record, world)
    return record


def _known(record: Record, world: World) -> bool:
    """Whether slurmctld has the new GRES. Of a node that is INVALID it shows what slurmd said, not what it asks for."""
    node = world.slurm.node(record.name)
    return agrees(node, record.meant.gres) and not node.invalid


def _restart_controller(record: Record, world: World) -> None:
    """A release before 23.11 takes other GRES only when slurmctld starts. Jobs live on."""
    command = record.change.settings.controller_restart
    if not command:
        raise needs_restart(record.version)
    if command == BY_HAND:
        world.say("restart slurmctld now: it is waited for")
        seconds = record.change.timeout_s
    else:
        world.say("restarting slurmctld")
        shell(command, "--slurmctld-restart", COMMAND_S, {"ALIQUOT_NODE_NAME": record.name})
        seconds = 30.0
    begin = world.now()
    while world.now() - begin <= seconds:
        waiting.answering(world, seconds)
        if _known(record, world):
            return
        world.sleep(waiting.POLL_S * 5)
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
