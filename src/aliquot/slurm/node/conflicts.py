"""Conflicts to check before a change: other Slurm nodes of the same host, reservations, and a requested reboot."""

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
    """Raise BlockedError if something else uses the node. ``pcis`` are the PCI addresses of the host's GPUs."""
    others = tuple(_neighbours(settings, context))
    had = {pci for each in others for pci in each.change.settings.gpus or pcis}
    for each in others:
        _refuse_common(settings, each.change.settings, [pci for pci in pcis if pci not in had], pcis, context.command)
        _refuse_slurmd(settings, each.change.settings, kind == each.kind == "dynamic")
    if node is not None:
        _refuse_reboot(node)
        if kind == "dynamic":
            refuse_reserved(settings.name, context)


def _neighbours(settings: SlurmNodeSettings, context: SlurmChangeContext) -> Iterator[ChangeRecord]:
    """Yield the records of other nodes of this host that Slurm still has."""
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
    settings: SlurmNodeSettings,
    theirs: SlurmNodeSettings,
    free: Sequence[str],
    pcis: Collection[str],
    command: Sequence[str],
) -> None:
    """Raise BlockedError if both nodes would offer a GPU.

    If no GPU is ``free``, the host probably has another name in Slurm, so the next command repeats the command for the
    other node. It does not delete that node, which may be right.
    """
    common = set(settings.gpus or pcis) & set(theirs.gpus or pcis)
    if not common:
        return
    name = settings.name
    offered = [word for pci in free for word in ("--capacity", pci)]
    own = shlex.join(["aliquot", "slurm", "apply", "--node-name", name, *offered])
    raise BlockedError(
        f"Slurm node {theirs.name} already offers GPU {min(common)}: Slurm would allocate it to two jobs",
        code="ALREADY_OFFERED",
        details=(
            f"If {name} is not this host's name in Slurm, set --node-name or SLURMD_NODENAME.",
            f"If {theirs.name} is to go, delete it first: scontrol delete nodename={theirs.name}",
        ),
        next_step=own if free else shlex.join([*command, "--node-name", theirs.name]),
    )


def _refuse_slurmd(settings: SlurmNodeSettings, theirs: SlurmNodeSettings, dynamic: bool) -> None:
    if settings.by_commands or theirs.by_commands:
        return
    if settings.unit.removesuffix(".service") == theirs.unit.removesuffix(".service"):
        raise BlockedError(
            f"{settings.unit} runs the slurmd of {theirs.name}: {settings.name} needs its own unit",
            code="SHARED_SLURMD",
            next_step=f"aliquot slurm apply --node-name {settings.name} --slurmd-unit slurmd@{settings.name}.service",
        )
    if dynamic and files.options_path(settings) == files.options_path(theirs):
        raise BlockedError(
            f"{files.options_path(settings)} has the options of {theirs.name}: {settings.name} needs its own file",
            code="SHARED_SLURMD",
            next_step=f"aliquot slurm apply --node-name {settings.name} "
            f"--slurmd-options /etc/default/slurmd-{settings.name}",
        )


def _refuse_reboot(node: SlurmNode) -> None:
    if node.states & _REBOOTS:
        raise BlockedError(
            f"a reboot of {node.name} is requested: Slurm may start jobs on it as soon as it is back",
            code="REBOOT_REQUESTED",
            details=(node.reason or "no reason given",),
            next_step=f"scontrol cancel_reboot {node.name}",
        )


def refuse_reserved(name: str, context: SlurmChangeContext) -> None:
    """Raise BusyError if a reservation includes the node.

    A reservation refers to a record, not to a name. Slurm does not delete a record with an active reservation. A future
    reservation would refer to whichever node takes the record's place.
    """
    try:
        found = [each for each in context.slurm.reservations() if name in each.nodes]
    except OldSlurmError:
        return
    if found:
        raise BusyError(
            f"reservation {', '.join(each.name for each in found)} is on {name}: it would be lost when the node "
            "registers again",
            details=("A static node (with a line in slurm.conf) can change its GPUs in spite of a reservation.",),
            next_step=_without(found[0], name),
        )


def _without(reservation: SlurmReservation, name: str) -> str:
    """Return the command that removes a node from a reservation and keeps the other nodes in it."""
    others = ",".join(each for each in reservation.nodes if each != name)
    if not others:
        return f"scontrol delete reservationname={reservation.name}"
    return f"scontrol update reservationname={reservation.name} nodes={others}"
