"""The steps of a change beside running jobs. Every step is idempotent."""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from aliquot.core.model.inventory import Inventory
from aliquot.errors import AliquotError
from aliquot.slurm.client.errors import BusyError
from aliquot.slurm.client.models import SlurmJob
from aliquot.slurm.files.slot_board import changed_slots
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import reconfigure, restart_gate, slot_gate, target
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import ChangeRecord, SlotUse
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import expected_gres
from aliquot.slurm.node.slot_plan import SlotPlan, slot_plan
from aliquot.slurm.node.slot_use import jobs_of, used_slots

SETTLE_S = 1.0
"""Seconds after which a job that Slurm started just before the gate has its processes. slurmctld loses the launch of a
job if it restarts meanwhile.
"""
LAUNCH_S = 60.0
"""Seconds to wait for a job whose prolog runs."""


def wait_for_slots(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Wait until the slots of the request are idle, by the policy for jobs. Jobs may start meanwhile.

    Raises BusyError with the jobs, by the policy or after the time limit.
    """
    change, begin, requeued = record.change, context.now(), False
    shown: tuple[int, ...] = ()
    while True:
        found = slot_plan(record, context.gpus.backend.read(), used_slots(record.name, context))
        if not found.dropped:
            return record
        waited = context.now() - begin
        if change.jobs == "refuse" or waited > change.timeout_s:
            raise busy_slots(record, found, context)
        if change.jobs == "requeue" and not requeued:
            waiting.requeue(_jobs(record, found.jobs, context), context)
            requeued = True
        if found.jobs != shown:
            left = max(change.timeout_s - waited, 0)
            context.report(f"waiting for {'; '.join(found.dropped)} ({left:.0f} s left)")
            shown = found.jobs
        context.sleep(waiting.POLL_S if waited < waiting.LONG_S else waiting.SLOW_S)


def close_gate(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Keep new jobs off the node, read which slots jobs have, and leave out what touches one of them.

    Raises BusyError if nothing of the request is left, if a job has started on a slot that has changed already, or if
    jobs could start behind the gate.
    """
    context.report(f"reserving {record.name}: no job starts on it, and running jobs go on")
    closed_at = slot_gate.close(record.name, context)
    context.sleep(SETTLE_S)
    slot_gate.refuse_maintenance((record.name,), context)
    _wait_for_launches(record.name, context)
    used = used_slots(record.name, context)
    inventory = context.gpus.backend.read()
    if record.touched:
        _refuse_started(record, inventory, used, context)
    else:
        record = _chosen(record, inventory, used, context)
    slot_gate.hold(record.name, closed_at, context)
    return replace(record, used_slots=used)


def update_daemons(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Let slurmctld and slurmd read the new types, without a moment at which the node is down.

    Raises BlockedError if a command fails. slurmd runs in any case.
    """
    with files.locked(record.change.settings.conf_dir):
        files.write(target.file_while_restarting(record))
    reconfigure.push_files(record, context)
    node = context.slurm.node(record.name)
    record = replace(record, restore_point=replace(record.restore_point, slurmd_start=node.slurmd_start))
    record = replace(record, started=waiting.another_second(record, context))
    context.save(record)
    if not reconfigure.reads_again(record):
        options = restart_gate.close(record.name, context)
        context.sleep(SETTLE_S)
        context.report("restarting slurmctld and slurmd")
        _restart_daemons(record, options, context)
        return record
    context.report("reconfiguring Slurm")
    context.slurm.reconfigure()
    waiting.wait_for_controller(context)
    return record


def _restart_daemons(record: ChangeRecord, options: str, context: SlurmChangeContext) -> None:
    """Restart slurmctld while slurmd is stopped, because slurmctld drains a node that registers its previous types.

    slurmd does not wait for an answer of the new slurmctld, because steps of running jobs need slurmd and wait a second
    for each failure. Whatever happens, slurmd runs at the end: Slurm ends the jobs of a node whose slurmd is away for
    long.
    """
    answered = reconfigure.answering_nodes(context)
    try:
        context.daemon.stop()
        reconfigure.restart_controller(record, options)
    except BaseException:
        with suppress(AliquotError):
            context.daemon.stop()
        context.daemon.start("")
        raise
    context.daemon.start("")
    waiting.wait_for_controller(context)
    reconfigure.report_forgotten(record, answered, context)


def verify_slots(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Wait until Slurm has exactly the new types, and write slurm.conf as it stays."""
    waiting.wait_for_registration(record, context)
    context.report(f"{record.name} registered with {record.expected.text}")
    with files.locked(record.change.settings.conf_dir):
        changed = [files.write(each) for each in target.desired_files(record)]
    if any(changed):
        reconfigure.push_files(record, context)
    if not record.undoing and record.change.revision:
        context.slurm.note(record.name, f"aliquot: {record.change.revision}")
    return record


def open_gate(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Let jobs start on the node again, and then on all others."""
    slot_gate.open_again(record.name, context)
    context.report(f"{record.name} takes jobs again")
    if not reconfigure.reads_again(record):
        restart_gate.open_again(record.name, context)
    return record


def busy_slots(record: ChangeRecord, found: SlotPlan, context: SlurmChangeContext) -> BusyError:
    """Return the error for a request of which nothing, or not all, is possible beside the running jobs."""
    error = waiting.busy(record.name, _jobs(record, found.jobs, context), "jobs have the slots")
    error.details = (*found.dropped, *error.details)
    return error


def _chosen(
    record: ChangeRecord, inventory: Inventory, used: tuple[SlotUse, ...], context: SlurmChangeContext
) -> ChangeRecord:
    """Return the record with the part of the request that no job prevents."""
    found = slot_plan(record, inventory, used)
    if found.dropped and not found.desired.gpus:
        raise busy_slots(record, found, context)
    for sentence in found.dropped:
        context.report(sentence)
    return replace(record, change=replace(record.change, desired=found.desired), dropped=found.dropped)


def _refuse_started(
    record: ChangeRecord, inventory: Inventory, used: tuple[SlotUse, ...], context: SlurmChangeContext
) -> None:
    """Raise BusyError if a job has a slot that an interrupted change has changed.

    That is only possible if someone deleted the reservation.
    """
    now = expected_gres(inventory, record.change.settings, record.version).lines
    changed = set(changed_slots(record.restore_point.lines, now))
    changed.discard(len(now) - 1)
    started = jobs_of(used, changed)
    if started or changed & {each.slot for each in used}:
        raise waiting.busy(
            record.name,
            _jobs(record, started, context),
            "jobs started on slots that have changed, because the reservation was deleted",
            "End or requeue them: their instances are not what they requested",
        )


def _wait_for_launches(name: str, context: SlurmChangeContext) -> None:
    jobs: tuple[SlurmJob, ...] = ()
    for _ in waiting.turns(context, LAUNCH_S):
        jobs = tuple(job for job in context.slurm.jobs(name) if job.state == "CONFIGURING")
        if not jobs:
            return
    raise waiting.busy(name, jobs, "Slurm is still starting jobs on it", "Their prolog may hang")


def _jobs(record: ChangeRecord, numbers: tuple[int, ...], context: SlurmChangeContext) -> tuple[SlurmJob, ...]:
    return tuple(job for job in context.slurm.jobs(record.name) if job.id in numbers)
