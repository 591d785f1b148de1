"""Checks before a node becomes a slot board, and before idle slots change beside running jobs. They touch nothing."""

from __future__ import annotations

import os
import shlex

from msgspec.structs import replace

from aliquot.core.model.inventory import Inventory
from aliquot.errors import BlockedError
from aliquot.slurm.client.errors import OldSlurmError
from aliquot.slurm.client.models import SlurmNode, Version
from aliquot.slurm.conf import files as conf
from aliquot.slurm.conf.nodes import node_line
from aliquot.slurm.conf.statements import Conf
from aliquot.slurm.files.fence import ANY_DEVICES
from aliquot.slurm.files.slot_board import missing_gpu
from aliquot.slurm.files.slot_proof import unproved_order
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import order_file as orderfile
from aliquot.slurm.node import reconfigure, slot_gate, slot_steps, slurmd_proof
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.request import BY_HAND, NodeKind, SlurmNodeSettings
from aliquot.slurm.node.slot_plan import SlotPlan, needs_reset, slot_plan
from aliquot.slurm.node.slot_use import used_slots

_UP_STATES = ("", "UNKNOWN", "IDLE")
"""Values of ``State=`` with which a node takes jobs. A change that was interrupted may have left the last."""

_CONTROLLERS = "sys/fs/cgroup/cgroup.controllers"
"""A file of control groups of version 2."""


def is_possible(record: ChangeRecord, node: SlurmNode, inventory: Inventory, interrupted: ChangeRecord | None) -> bool:
    """Report whether a change can leave running jobs alone. Otherwise the node changes as a whole.

    The node must be a slot board with the same slots already, and no GPU may change its MIG mode. An interrupted change
    of the whole node is finished first.
    """
    before, settings = record.restore_point, record.change.settings
    if not settings.slots or not before.slots or (interrupted is not None and not interrupted.beside_jobs):
        return False
    registered = sum(gres.count for gres in node.gres if gres.name == "gpu")
    return (
        len(before.lines) == len(record.expected.lines) == registered
        and not orderfile.differs(settings)
        and not needs_reset(record.change.desired.gpus, inventory)
        and (node.answers or interrupted is not None)
    )


def refuse_missing(record: ChangeRecord) -> None:
    """Raise BlockedError if the host has fewer GPUs than the board has, although the node offers the same ones."""
    before, settings, last = record.restore_point, record.change.settings, record.previous_settings
    same = last is None or set(last.gpus) == set(settings.gpus)
    if settings.slots and before.slots and same and len(record.expected.lines) < len(before.lines):
        has, had = len(record.expected.lines), len(before.lines)
        raise missing_gpu(f"a GPU of {record.name} is missing ({has} records instead of {had})")


def refuse_interrupted(record: ChangeRecord, interrupted: ChangeRecord | None) -> None:
    """Raise BlockedError if a change beside running jobs was interrupted: its reservation and its slots come first."""
    if interrupted is not None and interrupted.beside_jobs:
        raise BlockedError(
            f"an earlier change of the slots of {record.name} was interrupted, and must end first",
            details=(f"Reservation {slot_gate.name(record.name)} keeps new jobs away until then.",),
            next_step=f"aliquot slurm apply --continue --node-name {record.name}",
            code="SLOTS_INTERRUPTED",
        )


def prepare(record: ChangeRecord, inventory: Inventory, context: SlurmChangeContext) -> tuple[ChangeRecord, SlotPlan]:
    """Return the record of a change beside running jobs, and what of it is possible now.

    Raises AliquotError if it is refused.
    """
    _refuse_release(record, context)
    slot_gate.refuse_maintenance((record.name,), context)
    _refuse_order(record)
    record = replace(record, beside_jobs=True, drained=False)
    found = slot_plan(record, inventory, used_slots(record.name, context))
    if found.dropped and record.change.jobs == "refuse":
        raise slot_steps.busy_slots(record, found, context)
    return record, found


def _refuse_release(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Raise OldSlurmError if slurmctld has to be restarted, and no command does that at the right moment."""
    if reconfigure.reads_again(record):
        return
    command = record.change.settings.controller_restart
    if not command:
        raise reconfigure.needs_restart(record.version)
    if command == BY_HAND:
        raise OldSlurmError(
            f"Slurm {record.version} needs a restart of slurmctld while slurmd is stopped, for a second at most",
            details=("Beside running jobs that has to be a command: --slurmctld-restart 'ssh CONTROLLER ...'",),
            next_step="aliquot slurm apply --help",
        )
    context.daemon.ready()


def _refuse_order(record: ChangeRecord) -> None:
    """Raise BlockedError if slurmd does not number the present slots in their order."""
    before = record.restore_point
    wrong = unproved_order(before.lines, slurmd_proof.read(record, before.gres_text, before.lines))
    if wrong:
        raise BlockedError(
            f"the slots of {record.name} are not in the order that slurmd has: {wrong[0]}",
            details=(*wrong[1:3], "Without --slots the node changes as a whole, once its jobs have ended."),
            next_step=f"slurmd -G -N {record.name}",
            code="SLOT_ORDER",
        )


def refuse_unsuitable(settings: SlurmNodeSettings, kind: NodeKind, found: Conf, version: Version) -> None:
    """Raise BlockedError if the node, its files or its slurmd cannot have a slot board."""
    if kind == "dynamic":
        raise _refused(
            settings,
            f"{settings.name} is a dynamic node",
            "slurmd registers it with its types, so each change of types registers it again.",
            "A node with a line in slurm.conf can be a slot board.",
        )
    line = node_line(found, settings.name)
    state = line.get("State").upper() if line else ""
    if state not in _UP_STATES:
        raise _refused(settings, f"{settings.name} has State={state} in slurm.conf", "Remove it, or use State=UNKNOWN.")
    _refuse_detection(settings)
    cache = _configless(settings, found)
    if cache:
        raise _refused(
            settings,
            f"slurmd of {settings.name} runs without files of its own ({cache})",
            "slurmctld does not send the file by which slurmd sorts the slots.",
        )
    _refuse_device_program(settings, version)


def _refuse_device_program(settings: SlurmNodeSettings, version: Version) -> None:
    """Raise BlockedError if the kernel would refuse the program by which Slurm denies jobs the devices of a board.

    A board has 135 for each GPU.
    """
    if version >= ANY_DEVICES or not os.path.exists(os.path.join(settings.root, _CONTROLLERS)):
        return
    lines = conf.read(os.path.join(settings.conf_dir, "cgroup.conf"), "cgroup.conf")
    if lines is not None and lines.get("ConstrainDevices").lower() in ("yes", "true", "up", "1"):
        raise _refused(
            settings,
            f"Slurm {version} cannot deny jobs so many devices with control groups of version 2",
            "The kernel refuses its device program (BPF load error: No space left on device), and jobs do not run.",
            "Slurm 23.02.4 can, and so can a host with control groups of version 1.",
        )


def _refuse_detection(settings: SlurmNodeSettings) -> None:
    if settings.form not in ("none", "off"):
        raise BlockedError(
            f"a slot board has a line for each slot, and --autodetect {settings.form} has none",
            next_step=f"aliquot slurm apply --slots --autodetect off --node-name {settings.name}",
            code="NO_SLOT_BOARD",
        )
    lines = conf.read(os.path.join(settings.conf_dir, "gres.conf"), "gres.conf")
    pair = lines.last("AutoDetect") if lines else None
    if pair is not None and pair.value.lower() != "off" and settings.form == "none":
        raise BlockedError(
            f"{pair.location}: AutoDetect={pair.value} applies to all nodes, so the slots of a board could change",
            next_step=f"aliquot slurm apply --slots --autodetect off --node-name {settings.name}",
            code="NO_SLOT_BOARD",
        )


def _configless(settings: SlurmNodeSettings, found: Conf) -> str:
    """Return the evidence that slurmd gets its files from slurmctld, or ""."""
    options = files.options_of(settings) if not settings.by_commands else settings.start
    if "--conf-server" in options:
        return "--conf-server"
    spool = found.get("SlurmdSpoolDir", default="/var/spool/slurmd")
    folder = spool.replace("%n", settings.name).replace("%h", os.uname().nodename.partition(".")[0])
    cache = os.path.join(settings.root, folder.lstrip("/"), files.CACHE)
    return cache if os.path.exists(os.path.join(cache, "slurm.conf")) else ""


def _refused(settings: SlurmNodeSettings, why: str, *details: str) -> BlockedError:
    return BlockedError(
        f"no slot board: {why}",
        details=(*details, "Without --slots the node changes as a whole, once its jobs have ended."),
        next_step=shlex.join(["aliquot", "slurm", "apply", "--node-name", settings.name, "--jobs", "wait"]),
        code="NO_SLOT_BOARD",
    )
