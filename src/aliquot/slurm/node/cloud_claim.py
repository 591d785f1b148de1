"""Which CLOUD record a host is now: started and stopped by Slurm's power saving, one at a time.

The claim is a file that a reboot takes away, as it does slurmd. Who has it has the GPUs: another record is not started
beside it, however many Slurm asks for at once.
"""

from __future__ import annotations

import os

import msgspec

from aliquot.errors import BlockedError
from aliquot.foundation.state_store import StateFile
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.layouts import cloud_nodes as cloud
from aliquot.slurm.layouts import cloud_siblings as siblings
from aliquot.slurm.layouts.families import Layout
from aliquot.slurm.node import layout_switch as switch
from aliquot.slurm.node.change_record import Record
from aliquot.slurm.node.context import World
from aliquot.slurm.node.request import Settings
from aliquot.slurm.node.slurmd import START_S, daemon_of, shell

UNIT = "aliquot-slurmd@{record}.service"
"""deploy/systemd: a unit per record, whose slurmd says which one it is (``-b -N RECORD``)."""


class TakenError(BlockedError):
    """The host is another record now."""

    code = "HOST_TAKEN"


class Claim(msgspec.Struct, frozen=True):
    """Whose the host is, empty for none. ``resting`` are that record's lines in gres.conf for when it is so no more."""

    record: str
    resting: tuple[str, ...] = ()


def path(world: World) -> str:
    """Where a reboot takes it away; a simulated node has its own folder, since several are one machine."""
    return os.path.join(world.places.lib if world.places.simulated else world.places.run, "cloud-claim.json")


def read(world: World) -> Claim | None:
    """None where no record has the host. Raises StorageError where the file system refuses."""
    found = file(world).load()
    return found if found.record else None


def file(world: World) -> StateFile[Claim]:
    """Return the file of the host's claim."""
    return StateFile(path(world), "cloud-claim", Claim, Claim(""), former="claim")


def start(layout: Layout, board: switch.Board, settings: Settings, world: World) -> Record:
    """Be the record ``settings.name``: cut the GPUs, write the files, start its slurmd. Raises BlockedError while the
    host is another one, and whatever the change raises; then the host is nobody's.
    """
    held = read(world)
    if held is not None and held.record != settings.name:
        _refuse_living(held, settings, world)
        stop(msgspec.structs.replace(settings, name=held.record), world)
    resting = cloud.resting(settings.name, cloud.gres(board.gpus, layout, settings.style))
    file(world).save(Claim(settings.name, resting))
    try:
        record = switch.switch(layout, board, settings, world)
        world.say(f"starting slurmd as {settings.name}")
        _start(settings)
    except BaseException:
        _free(settings, resting, world)
        raise
    return record


def _refuse_living(held: Claim, settings: Settings, world: World) -> None:
    """A claim is left over where Slurm knows that its record is off: its stop never came here."""
    try:
        node = world.slurm.node(held.record)
    except NoNodeError:
        return
    if not siblings.off(node):
        raise TakenError(
            f"{settings.name} cannot start: this host is {held.record} now",
            details=("of the records of one host one may be open: 'aliquot slurm siblings --check' says which are",),
            next_step=f"scontrol update nodename={held.record} state=power_down",
        )


def stop(settings: Settings, world: World) -> bool:
    """Be the record no more: its slurmd ends, its lines name no devices any more, the GPUs stay as they are. False
    where the host was not that record: a late word about one that gave way harms nobody.
    """
    held = read(world)
    if held is None or held.record != settings.name:
        return False
    world.say(f"stopping slurmd of {settings.name}")
    daemon_of(running(settings)).stop()
    _free(settings, held.resting, world)
    return True


def _free(settings: Settings, resting: tuple[str, ...], world: World) -> None:
    """The host is nobody's; gres.conf speaks of no device that the next record takes away."""
    switch.put_lines(settings, resting)
    file(world).remove()


def running(settings: Settings) -> Settings:
    """How the record's slurmd is run: a unit of its own, unless commands are given."""
    return (
        settings if settings.by_commands else msgspec.structs.replace(settings, unit=UNIT.format(record=settings.name))
    )


def _start(settings: Settings) -> None:
    """``-b`` says that the machine has just started: Slurm waits for that after it asked for power."""
    if not settings.by_commands:
        daemon_of(running(settings)).start("")
        return
    told = {
        "ALIQUOT_NODE_NAME": settings.name,
        "ALIQUOT_SLURMD_CONF": "",
        "ALIQUOT_SLURMD_OPTIONS": f"-b -N {settings.name}",
    }
    shell(settings.start, "--slurmd-start", START_S, told)


__all__ = ["UNIT", "Claim", "TakenError", "file", "path", "read", "running", "start", "stop"]
