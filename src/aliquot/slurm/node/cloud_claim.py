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
from aliquot.slurm.layouts.families import FeatureLayout
from aliquot.slurm.node import layout_switch as switch
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.request import SlurmNodeSettings
from aliquot.slurm.node.slurmd import START_S, daemon_of, run_shell

UNIT = "aliquot-slurmd@{record}.service"
"""deploy/systemd: a unit per record, whose slurmd says which one it is (``-b -N RECORD``)."""


class TakenError(BlockedError):
    """The host is another record now."""

    code = "HOST_TAKEN"


class CloudClaim(msgspec.Struct, frozen=True):
    """Whose the host is, empty for none. ``absent_gres_lines`` are that record's lines in gres.conf for when it is so
    no more.
    """

    node_name: str = msgspec.field(name="record")
    absent_gres_lines: tuple[str, ...] = msgspec.field(default=(), name="resting")


def path(context: SlurmChangeContext) -> str:
    """Where a reboot takes it away; a simulated node has its own folder, since several are one machine."""
    return os.path.join(context.folders.lib if context.folders.simulated else context.folders.run, "cloud-claim.json")


def read(context: SlurmChangeContext) -> CloudClaim | None:
    """None where no record has the host. Raises StorageError where the file system refuses."""
    found = file(context).load()
    return found if found.node_name else None


def file(context: SlurmChangeContext) -> StateFile[CloudClaim]:
    """Return the file of the host's claim."""
    return StateFile(path(context), "cloud-claim", CloudClaim, CloudClaim(""), legacy_name="claim")


def start(
    layout: FeatureLayout, group: switch.GpuGroup, settings: SlurmNodeSettings, context: SlurmChangeContext
) -> ChangeRecord:
    """Be the record ``settings.name``: cut the GPUs, write the files, start its slurmd. Raises BlockedError while the
    host is another one, and whatever the change raises; then the host is nobody's.
    """
    held = read(context)
    if held is not None and held.node_name != settings.name:
        _refuse_running(held, settings, context)
        stop(msgspec.structs.replace(settings, name=held.node_name), context)
    absent_gres_lines = cloud.absent_gres_lines(settings.name, cloud.gres(group.gpus, layout, settings.style))
    file(context).save(CloudClaim(settings.name, absent_gres_lines))
    try:
        record = switch.switch(layout, group, settings, context)
        context.report(f"starting slurmd as {settings.name}")
        _start(settings)
    except BaseException:
        _release(settings, absent_gres_lines, context)
        raise
    return record


def _refuse_running(held: CloudClaim, settings: SlurmNodeSettings, context: SlurmChangeContext) -> None:
    """A claim is left over where Slurm knows that its record is off: its stop never came here."""
    try:
        node = context.slurm.node(held.node_name)
    except NoNodeError:
        return
    if not siblings.is_powered_off(node):
        raise TakenError(
            f"{settings.name} cannot start: this host is {held.node_name} now",
            details=("of the records of one host one may be open: 'aliquot slurm siblings --check' says which are",),
            next_step=f"scontrol update nodename={held.node_name} state=power_down",
        )


def stop(settings: SlurmNodeSettings, context: SlurmChangeContext) -> bool:
    """Be the record no more: its slurmd ends, its lines name no devices any more, the GPUs stay as they are. False
    where the host was not that record: a late word about one that gave way harms nobody.
    """
    held = read(context)
    if held is None or held.node_name != settings.name:
        return False
    context.report(f"stopping slurmd of {settings.name}")
    daemon_of(running(settings)).stop()
    _release(settings, held.absent_gres_lines, context)
    return True


def _release(settings: SlurmNodeSettings, absent_gres_lines: tuple[str, ...], context: SlurmChangeContext) -> None:
    """The host is nobody's; gres.conf speaks of no device that the next record takes away."""
    switch.put_lines(settings, absent_gres_lines)
    file(context).remove()


def running(settings: SlurmNodeSettings) -> SlurmNodeSettings:
    """How the record's slurmd is run: a unit of its own, unless commands are given."""
    return (
        settings if settings.by_commands else msgspec.structs.replace(settings, unit=UNIT.format(record=settings.name))
    )


def _start(settings: SlurmNodeSettings) -> None:
    """``-b`` says that the machine has just started: Slurm waits for that after it asked for power."""
    if not settings.by_commands:
        daemon_of(running(settings)).start("")
        return
    variables = {
        "ALIQUOT_NODE_NAME": settings.name,
        "ALIQUOT_SLURMD_CONF": "",
        "ALIQUOT_SLURMD_OPTIONS": f"-b -N {settings.name}",
    }
    run_shell(settings.start, "--slurmd-start", START_S, variables)


__all__ = ["UNIT", "CloudClaim", "TakenError", "file", "path", "read", "running", "start", "stop"]
