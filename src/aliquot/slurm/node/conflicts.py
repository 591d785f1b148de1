"""Before anything is touched: who else has a part in this node. Other Slurm nodes of the same host, reservations, and
a reboot that somebody has asked for.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterator, Sequence

from aliquot.errors import BlockedError, StorageError
from aliquot.slurm.client.errors import BusyError, NoNodeError, OldSlurmError
from aliquot.slurm.client.models import SlurmNode, SlurmReservation
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node.change_record import ChangeRecord, ChangeRecordFile, recorded_names
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.request import NodeKind, SlurmNodeSettings

_REBOOTS = {"REBOOT_REQUESTED", "REBOOT_ISSUED"}


def refuse_conflicts(
    settings: SlurmNodeSettings,
    kind: NodeKind,
    node: SlurmNode | None,
    pcis: Collection[str],
    context: SlurmChangeContext,
) -> None:
    """Raises BlockedError for a node of which somebody else has a part. ``pcis`` are the host's GPUs."""
    others = tuple(_neighbours(settings, context))
    had = {pci for each in others for pci in each.change.settings.gpus or pcis}
    for each in others:
        _refuse_common(settings, each.change.settings, [pci for pci in pcis if pci not in had], pcis)
        _refuse_slurmd(settings, each.change.settings, kind == each.kind == "dynamic")
    if node is not None:
        _refuse_reboot(node)
        if kind == "dynamic":
            refuse_reserved(settings.name, context)


def _neighbours(settings: SlurmNodeSettings, context: SlurmChangeContext) -> Iterator[ChangeRecord]:
    """Other nodes that this host is, or was, and that Slurm still has."""
    for name in recorded_names(context.folders.lib):
        if name == settings.name:
            continue
        try:
            record = ChangeRecordFile(context.folders.lib, name).read()
            known = context.slurm.node(name)
        except (NoNodeError, StorageError):
            continue
        if record is not None and "FUTURE" not in known.states and any(g.name == "gpu" for g in known.gres):
            yield record


def _refuse_common(
    settings: SlurmNodeSettings, theirs: SlurmNodeSettings, free: Sequence[str], pcis: Collection[str]
) -> None:
    common = set(settings.gpus or pcis) & set(theirs.gpus or pcis)
    if not common:
        return
    name = settings.name
    offered = [word for pci in free for word in ("--offers", pci)]
    own = shlex.join(["aliquot", "slurm", "apply", "--node-name", name, *offered])
    raise BlockedError(
        f"Slurm node {theirs.name} offers GPU {min(common)} already: what two nodes offer is given to two jobs",
        details=(f"is {name} this host's name in Slurm? --node-name, or SLURMD_NODENAME, says it",),
        next_step=own if free else f"scontrol delete nodename={theirs.name}",
    )


def _refuse_slurmd(settings: SlurmNodeSettings, theirs: SlurmNodeSettings, dynamic: bool) -> None:
    if settings.by_commands or theirs.by_commands:
        return
    if settings.unit.removesuffix(".service") == theirs.unit.removesuffix(".service"):
        raise BlockedError(
            f"{settings.unit} is the slurmd of {theirs.name}: it cannot be that of {settings.name}, too",
            next_step=f"aliquot slurm apply --node-name {settings.name} --slurmd-unit slurmd@{settings.name}.service",
        )
    if dynamic and files.options_path(settings) == files.options_path(theirs):
        raise BlockedError(
            f"{files.options_path(settings)} says what {theirs.name} has: {settings.name} needs a file of its own",
            next_step=f"aliquot slurm apply --node-name {settings.name} "
            f"--slurmd-options /etc/default/slurmd-{settings.name}",
        )


def _refuse_reboot(node: SlurmNode) -> None:
    if node.states & _REBOOTS:
        raise BlockedError(
            f"a reboot of {node.name} is asked for: Slurm may give it jobs as soon as it is back",
            details=(node.reason or "no reason given",),
            next_step=f"scontrol cancel_reboot {node.name}",
        )


def refuse_reserved(name: str, context: SlurmChangeContext) -> None:
    """A reservation is about a record, not about a name: Slurm deletes no record with one that has begun, and one that
    is to come would be about whatever node takes the record's place. Raises BusyError.
    """
    try:
        found = [each for each in context.slurm.reservations() if name in each.nodes]
    except OldSlurmError:
        return
    if found:
        raise BusyError(
            f"reservation {', '.join(each.name for each in found)} is on {name}: it would be lost when the node is "
            "registered anew",
            details=("a static node, with a line in slurm.conf, changes its GPUs within a reservation, too",),
            next_step=_without(found[0], name),
        )


def _without(reservation: SlurmReservation, name: str) -> str:
    """The command that takes a node out of a reservation, and leaves it to the others that it is on."""
    others = ",".join(each for each in reservation.nodes if each != name)
    if not others:
        return f"scontrol delete reservationname={reservation.name}"
    return f"scontrol update reservationname={reservation.name} nodes={others}"
