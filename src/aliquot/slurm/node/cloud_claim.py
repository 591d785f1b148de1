"""The claim of a host by one CLOUD record. Slurm's power saving starts and stops the records, one at a time.

The claim is a file that a reboot removes, as it ends slurmd. The record that has it owns the GPUs: no other record is
started at the same time, however many Slurm requests.
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
"""A unit per record (deploy/systemd), whose slurmd runs as that record (``-b -N RECORD``)."""


class TakenError(BlockedError):
    """The host runs as another CLOUD record."""

    code = "HOST_TAKEN"


class CloudClaim(msgspec.Struct, frozen=True):
    """The record that owns the host; an empty name for none."""

    node_name: str = msgspec.field(name="record")
    absent_gres_lines: tuple[str, ...] = msgspec.field(default=(), name="resting")
    """The record's lines in gres.conf after it has released the host."""


def path(context: SlurmChangeContext) -> str:
    """Return the path of the claim, which a reboot clears. Each simulated node of a host has its own directory."""
    return os.path.join(context.folders.lib if context.folders.simulated else context.folders.run, "cloud-claim.json")


def read(context: SlurmChangeContext) -> CloudClaim | None:
    """Read the claim, or return None if no record owns the host. Raises StorageError if the file system fails."""
    found = file(context).load()
    return found if found.node_name else None


def file(context: SlurmChangeContext) -> StateFile[CloudClaim]:
    """Return the file of the host's claim."""
    return StateFile(path(context), "cloud-claim", CloudClaim, CloudClaim(""), legacy_name="claim")


def start(
    layout: FeatureLayout, group: switch.GpuGroup, settings: SlurmNodeSettings, context: SlurmChangeContext
) -> ChangeRecord:
    """Start the record ``settings.name``: partition the GPUs, write the files, start its slurmd.

    Raises TakenError while another record owns the host. Raises the errors of the change; then no record owns the host.
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
    """Raise TakenError if the claiming record is on. If it is off, its stop was lost, and the claim is outdated."""
    try:
        node = context.slurm.node(held.node_name)
    except NoNodeError:
        return
    if not siblings.is_powered_off(node):
        raise TakenError(
            f"{settings.name} cannot start: this host runs as {held.node_name}",
            details=("Only one record of a host may be open: see 'aliquot slurm siblings --check'.",),
            next_step=f"scontrol update nodename={held.node_name} state=power_down",
        )


def stop(settings: SlurmNodeSettings, context: SlurmChangeContext) -> bool:
    """Stop the record: end its slurmd, and replace its lines by placeholders. The GPUs stay as they are.

    Returns False if the record did not own the host, so a late stop of another record does no harm.
    """
    held = read(context)
    if held is None or held.node_name != settings.name:
        return False
    context.report(f"stopping slurmd of {settings.name}")
    daemon_of(running(settings)).stop()
    _release(settings, held.absent_gres_lines, context)
    return True


def _release(settings: SlurmNodeSettings, absent_gres_lines: tuple[str, ...], context: SlurmChangeContext) -> None:
    """Release the host, and remove the devices, which the next record destroys, from the record's lines."""
    switch.put_lines(settings, absent_gres_lines)
    file(context).remove()


def running(settings: SlurmNodeSettings) -> SlurmNodeSettings:
    """Return the settings with the unit of the record's own slurmd, unless commands start it."""
    return (
        settings if settings.by_commands else msgspec.structs.replace(settings, unit=UNIT.format(record=settings.name))
    )


def _start(settings: SlurmNodeSettings) -> None:
    """Start the record's slurmd. ``-b`` reports a boot, for which Slurm waits after it requested power up."""
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
