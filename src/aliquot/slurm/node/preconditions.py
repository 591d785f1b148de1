"""Checks before a change touches anything. Every change that can be refused in advance is refused here."""

from __future__ import annotations

import os
import time

from msgspec.structs import replace

from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.restore_point import make_restore_point
from aliquot.errors import BlockedError, UsageError
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.client.models import SlurmJob, SlurmNode
from aliquot.slurm.conf import files as conf
from aliquot.slurm.conf.nodes import node_line
from aliquot.slurm.conf.statements import Conf
from aliquot.slurm.files import fence
from aliquot.slurm.files import managed_block as block
from aliquot.slurm.files import slot_board as board
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import conflicts as guards
from aliquot.slurm.node import host_facts, node_attributes, reconfigure, slot_gate, target
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import node_conf as nodeconf
from aliquot.slurm.node import order_file as orderfile
from aliquot.slurm.node import slot_preparation as preparation
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import ChangeRecord, NodeRestorePoint
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import agrees, expected_gres
from aliquot.slurm.node.gpu_plan import feasible, freed
from aliquot.slurm.node.request import (
    NodeKind,
    SlurmChange,
    SlurmNodeSettings,
    checked,
    held_by_others,
    is_our_reason,
)


def prepare_change(
    change: SlurmChange, context: SlurmChangeContext, earlier: ChangeRecord | None
) -> ChangeRecord | None:
    """Return the record of the change, not yet on disk, or None if the node is already as requested. The restore point
    of an interrupted ``earlier`` change is kept. Raises AliquotError if it is refused; then nothing was touched.
    """
    settings = checked(change.settings)
    found = files.conf_of(settings)
    files.refuse_copies(settings)
    settings = replace(settings, fence=files.has_fence_gres(settings, found))
    change = replace(change, settings=settings)
    kind = files.kind_of(settings, found)
    release = context.slurm.version()
    if settings.slots:
        preparation.refuse_unsuitable(settings, kind, found, release)
    version = str(release)
    node = _node(settings.name, kind, context)
    inventory = context.gpus.backend.read()
    guards.refuse_conflicts(settings, kind, node, [gpu.pci for gpu in inventory.gpus], context)
    interrupted = earlier if earlier and earlier.status == "open" and earlier.touched else None
    record = ChangeRecord(
        run=os.urandom(4).hex(),
        change=change,
        kind=kind,
        version=version,
        began=time.time(),
        expected=expected_gres(inventory, settings, version),
        drained=_drained_by_us(node, earlier),
        touched=interrupted is not None,
        restore_point=_inherited_restore_point(interrupted, node)
        if interrupted
        else _restore_point(change, inventory, found, node, earlier),
        node_conf=_node_conf(change, node) if kind == "dynamic" else "",
        previous_settings=_previous_settings(earlier),
    )
    preparation.refuse_missing(record)
    if node is not None and preparation.is_possible(record, node, inventory, interrupted):
        return _prepare_beside_jobs(record, node, inventory, context)
    preparation.refuse_interrupted(record, interrupted)
    return _prepare_node(record, node, inventory, context, interrupted is not None)


def _prepare_node(
    record: ChangeRecord,
    node: SlurmNode | None,
    inventory: Inventory,
    context: SlurmChangeContext,
    interrupted: bool,
) -> ChangeRecord | None:
    """Return the record of a change of the whole node, for which its jobs end first."""
    change, settings = record.change, record.change.settings
    jobs = waiting.observe(settings.name, context).jobs if node is not None else ()
    made = _feasible(change, inventory, jobs)
    record = replace(record, restart=bool(made.resets) or node is None or not node.answers)
    _refuse(record, made, node, context)
    if not interrupted and not made.changes and _is_settled(record, node):
        reconfigure.hide_fences(settings, context)
        return None
    if change.jobs == "refuse" and jobs:
        raise waiting.busy(settings.name, jobs, "jobs are on it")
    return replace(record, phase=steps.route(record)[0])


def _prepare_beside_jobs(
    record: ChangeRecord, node: SlurmNode, inventory: Inventory, context: SlurmChangeContext
) -> ChangeRecord | None:
    """Return the record of a change of idle slots beside running jobs."""
    record, found = preparation.prepare(record, inventory, context)
    _refuse(record, found.plan, node, context)
    settled = not found.plan.changes and not found.dropped and _is_settled(record, node)
    if not record.touched and settled and not slot_gate.is_closed(record.name, context):
        return None
    return replace(record, phase=steps.route(record)[0])


def _feasible(change: SlurmChange, inventory: Inventory, jobs: tuple[SlurmJob, ...]) -> Plan:
    """Return the plan, ignoring holders that may end with the running jobs; they are checked again after the jobs end.

    If jobs are requeued, other holders count now, or the jobs would be stopped in vain.
    """
    return feasible(change, freed(inventory, _stopped(change, jobs)) if jobs else inventory)


def _stopped(change: SlurmChange, jobs: tuple[SlurmJob, ...]) -> tuple[int, ...] | None:
    return tuple(job.id for job in jobs) if change.jobs == "requeue" else None


def _node(name: str, kind: NodeKind, context: SlurmChangeContext) -> SlurmNode | None:
    node = waiting.wait_until_settled(name, context)
    if node is None:
        if kind == "static":
            raise NoNodeError(
                f"slurm.conf names {name}, but slurmctld does not have it",
                details=("Run scontrol reconfigure, and check that slurmctld reads the same slurm.conf.",),
                next_step="scontrol show config | grep SLURM_CONF",
            )
        return None
    if kind == "dynamic" and "FUTURE" in node.states:
        return None
    if kind == "dynamic" and not node.dynamic:
        raise BlockedError(
            f"{name} is neither in slurm.conf nor dynamic ({'+'.join(sorted(node.states))})",
            code="NOT_IN_CONF",
            details=("Check that --conf-dir is the directory that slurmctld reads.",),
            next_step="scontrol show config | grep SLURM_CONF",
        )
    return node


def _restore_point(
    change: SlurmChange, inventory: Inventory, found: Conf, node: SlurmNode | None, earlier: ChangeRecord | None
) -> NodeRestorePoint:
    settings = change.settings
    pcis = settings.gpus or tuple(w.pci for w in change.desired.gpus)
    path = os.path.join(settings.conf_dir, "gres.conf")
    text = conf.text_of(path) if os.path.exists(path) else ""
    mine = next((b for b in block.blocks(text) if b.node == settings.name), None)
    line = node_line(found, settings.name)
    words = "" if line else _previous_node_conf(change, node, earlier)
    gres_text = ",".join(map(fence.gres_entry, node.gres)) if node else ""
    current_gres = line.get("Gres") if line else fence.with_fence(gres_text, mine.lines if mine else ())
    typed = earlier is None or earlier.change.settings.node_conf != settings.node_conf
    return NodeRestorePoint(
        desired=make_restore_point(inventory, pcis) if change.desired.gpus else change.desired,
        lines=mine.lines if mine else (),
        gres=node.gres if node else (),
        gres_text=current_gres,
        # What an operator has set since then is only in slurmctld.
        features=line.features if line else None if node is None or (typed and settings.node_conf) else node.features,
        node_conf=words,
        reason="" if node is None or _drained_by_us(node, None) else node.reason or "drained before, without a reason",
        slurmd_start=node.slurmd_start if node else 0,
        attributes=node_attributes.attributes_of(node, current_gres or nodeconf.gres_of(words)),
        slots=board.is_board(mine.lines if mine else ()),
        state=line.statement.get("State") if line else "",
    )


def _inherited_restore_point(interrupted: ChangeRecord, node: SlurmNode | None) -> NodeRestorePoint:
    """Return the restore point of an interrupted change, with the reason of someone who has drained the node since."""
    reason = node.reason if node and held_by_others(node) else interrupted.restore_point.reason
    return replace(interrupted.restore_point, reason=reason, slurmd_start=node.slurmd_start if node else 0)


def _node_conf(change: SlurmChange, node: SlurmNode | None) -> str:
    """Return a dynamic node's keys other than GPUs: from the command line, its slurmd's options, or Slurm's record."""
    settings = change.settings
    typed = settings.node_conf
    wrong = nodeconf.invalid_words(typed)
    if wrong:
        raise UsageError(f"--node-conf: {wrong[0]}", details=wrong[1:], next_step="aliquot slurm apply --help")
    configured = "" if settings.by_commands else nodeconf.conf_in_options(files.options_of(settings))
    words = typed or configured or (nodeconf.from_node(node) if node else "")
    if not words:
        raise UsageError(
            f"Slurm does not have {settings.name} yet: its hardware must be given with --node-conf",
            details=(
                "Give it once: --node-conf 'CPUs=64 RealMemory=500000 Feature=mig'",
                "slurmd -C prints CPUs and memory. NodeSet in slurm.conf selects nodes by Feature.",
            ),
            next_step="slurmd -C",
        )
    return words


def _previous_node_conf(change: SlurmChange, node: SlurmNode | None, earlier: ChangeRecord | None) -> str:
    """Return the keys that a dynamic node has now, other than GPUs; those of the change for a new node."""
    if node is None:
        return _node_conf(change, node)
    settings = change.settings
    configured = "" if settings.by_commands else nodeconf.conf_in_options(files.options_of(settings))
    recorded = "" if earlier is None else earlier.restore_point.node_conf
    if earlier is not None and earlier.status == "done":
        recorded = earlier.node_conf or recorded
    return configured or recorded or nodeconf.from_node(node)


def _previous_settings(earlier: ChangeRecord | None) -> SlurmNodeSettings | None:
    """Return the settings of the last change that succeeded."""
    if earlier is None:
        return None
    return earlier.change.settings if earlier.status == "done" else earlier.previous_settings


def _refuse_memory(record: ChangeRecord, node: SlurmNode | None, found: Conf) -> None:
    """Raise UsageError for more memory than the host has, because slurmctld makes such a node INVALID."""
    if node is not None and _keeps_node_conf(record):
        return
    wanted = {key.lower(): value for key, value in nodeconf.words(record.node_conf).items()}.get("realmemory", "")
    if not wanted.isdecimal() or "config_overrides" in found.get("SlurmdParameters"):
        return
    has = host_facts.memory_mib()
    if 0 < has < int(wanted):
        raise UsageError(
            f"--node-conf: RealMemory={wanted} is more than the {has} MiB that this host has: "
            f"slurmctld would not accept {record.name}",
            next_step="slurmd -C",
        )


def _keeps_node_conf(record: ChangeRecord) -> bool:
    """Report whether a dynamic node has the requested keys other than GPUs."""
    return nodeconf.includes(record.restore_point.node_conf, record.node_conf)


def _drained_by_us(node: SlurmNode | None, earlier: ChangeRecord | None) -> bool:
    """Report whether the node should take jobs after the change: not if someone else had drained it or set it DOWN."""
    if node is not None and held_by_others(node):
        return False
    if earlier is not None and earlier.status == "open":
        return earlier.drained or not earlier.restore_point.reason
    # A drain without a reason is not ours.
    return node is None or not node.draining or bool(node.reason)


def _refuse(record: ChangeRecord, made: Plan, node: SlurmNode | None, context: SlurmChangeContext) -> None:
    """Raise an error for manual edits, lines that cover other nodes, and restarts that are not possible."""
    change, settings = record.change, record.change.settings
    if "start" in steps.route(record) and (made.changes or not _is_settled(record, node)):
        context.daemon.ready()
    files.gres_file(settings, record.expected.lines, force=change.force)
    for note in orderfile.refuse_conflicts(settings):
        context.report(f"note: {note}")
    if record.kind == "dynamic":
        _refuse_memory(record, node, files.conf_of(settings))
        return
    assert node is not None
    differs = made.changes or not agrees(node, record.expected.gres)
    if differs:
        # The new value is not known yet; this only checks that the line can get one.
        files.node_file(settings, files.conf_of(settings), "gpu:0", change.features)
    old = steps.version_of(record.version) < steps.RELOADS
    if differs and old and not settings.controller_restart:
        raise reconfigure.needs_restart(record.version)


def _is_settled(record: ChangeRecord, node: SlurmNode | None) -> bool:
    """Report whether Slurm, its files and the GPUs agree, and the node needs no change."""
    if node is None or not node.answers or not agrees(node, record.expected.gres):
        return False
    if node.draining and is_our_reason(node.reason):
        return False
    if record.kind == "dynamic" and not _keeps_node_conf(record):
        return False
    with files.locked(record.change.settings.conf_dir):
        if orderfile.differs(record.goal_settings) or any(files.differs(each) for each in target.desired_files(record)):
            return False
    requested = record.change.features
    return requested is None or set(requested) == set(node.features)
