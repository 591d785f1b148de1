"""Executes the steps of a change. Every step is idempotent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from msgspec.structs import replace

from aliquot.errors import AliquotError, StalePlanError
from aliquot.slurm.client.errors import NoNodeError
from aliquot.slurm.files import gpu_numbering as numbering
from aliquot.slurm.node import config_files as files
from aliquot.slurm.node import conflicts as guards
from aliquot.slurm.node import gpu_apply as applying
from aliquot.slurm.node import node_attributes, reconfigure, slot_steps, slurmd_proof, target
from aliquot.slurm.node import order_file as orderfile
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext
from aliquot.slurm.node.desired_gres import expected_gres
from aliquot.slurm.node.request import SlurmStep, held_by_others, is_our_reason


def execute(step: SlurmStep, record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Execute one step, and return the updated record. Raises AliquotError."""
    return (_BESIDE_JOBS if record.beside_jobs else _STEPS)[step](record, context)


def _drain(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    node = waiting.fetch_node(record.name, context)
    if node is not None and not node.draining:
        context.report(f"draining {record.name}")
        context.slurm.drain(record.name, waiting.reason(record))
    return record


def _wait(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    waiting.wait_for_jobs(record, context)
    if not record.touched and not record.undoing:
        waiting.wait_for_processes(record, context)
    return record


def _stop(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    context.report(f"stopping slurmd of {record.name}")
    context.daemon.stop()
    return record


def _files(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    settings = record.change.settings
    if not record.undoing:
        slurmd_proof.refuse_differences(record)
    with files.locked(settings.conf_dir):
        for each in target.desired_files(record):
            if files.write(each):
                context.report(f"wrote {each.path}")
        if orderfile.write(record.goal_settings):
            done = "created" if record.goal_settings.slots else "removed"
            context.report(f"{done} {orderfile.path(settings)}")
    detected = settings.form not in ("none", "off")
    numbering.write(numbering.Numbering(record.name, record.expected.devices, detected), context.folders.run)
    return record


def _forget(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    record = waiting.respect_other_drain(record, context)
    if record.undoing and _record_remains(record, context):
        return record
    if not record.undoing:
        guards.refuse_reserved(record.name, context)
    try:
        context.slurm.delete(record.name)
    except NoNodeError:
        return record
    context.report(f"deleted the record of {record.name}")
    return record


def _record_remains(record: ChangeRecord, context: SlurmChangeContext) -> bool:
    """Report whether Slurm still has the previous record, so that slurmd can register with it and nothing is lost."""
    node, before = waiting.fetch_node(record.name, context), record.restore_point
    if node is None or node.invalid or before.features is None or set(node.features) != set(before.features):
        return False
    return bool(node.gres) and sorted(map(str, node.gres)) == sorted(map(str, before.gres))


def _start(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    settings = record.change.settings
    words = target.conf(record, drained=True) if record.kind == "dynamic" else ""
    # A slurmd that was started before a kill, but not recorded, may have read other files: restart it.
    context.daemon.stop()
    if words and not settings.by_commands:
        files.write(files.options_file(settings, words))
    record = replace(record, started=waiting.another_second(record, context))
    context.save(record)
    context.report(f"starting slurmd of {record.name}")
    context.daemon.start(words)
    return record


def _verify(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    node = waiting.wait_for_registration(record, context)
    context.report(f"{record.name} registered with {record.expected.text}")
    reconfigure.hide_fences(record.change.settings, context)
    _refuse_moved(record, context)
    if record.kind == "dynamic" and not record.change.settings.by_commands:
        files.write(files.options_file(record.change.settings, target.conf(record)))
    if not record.undoing and record.change.revision:
        context.slurm.note(record.name, f"aliquot: {record.change.revision}")
    if not node.draining and record.undoing:
        context.slurm.drain(record.name, waiting.reason(record))
    if record.kind != "dynamic":
        return record
    lost = node_attributes.restore(
        record.restore_point.attributes, node, context.slurm, noted=not record.undoing and bool(record.change.revision)
    )
    return replace(record, expected=replace(record.expected, notes=(*record.expected.notes, *lost)))


def _refuse_moved(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Raise StalePlanError if another command has changed the GPUs after slurmd read its files."""
    now = expected_gres(context.gpus.backend.read(), record.goal_settings, record.version)
    if now.devices != record.expected.devices:
        raise StalePlanError(
            f"something else changed the GPUs of {record.name} during this change",
            details=(f"Slurm has {record.expected.text}, but the GPUs now offer {now.text}.",),
            next_step="aliquot show",
        )


def _verify_slots(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    record = slot_steps.verify_slots(record, context)
    _refuse_moved(record, context)
    return record


def _resume(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    node = waiting.fetch_node(record.name, context)
    if node is None:
        return record
    if record.drained and held_by_others(node):
        context.report(f"{record.name} stays drained: {node.reason}")
    elif record.drained:
        if waiting.resume_node(record, context) or not record.undoing:
            _update_reason(record, context)
            context.report(f"{record.name} takes jobs again")
        else:
            _keep_drained(record, context)
    elif held_by_others(node):
        context.report(f"{record.name} stays drained, as before: {node.reason}")
    elif record.restore_point.reason:
        context.slurm.drain(record.name, record.restore_point.reason)
        context.report(f"{record.name} stays drained, as before: {record.restore_point.reason}")
    return record


def _keep_drained(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Drain a node again if its slurmd does not answer, because the failure may have stopped it."""
    context.slurm.drain(record.name, f"aliquot: slurmd does not answer; {record.why}"[:250])
    context.report(
        f"{record.name} stays drained: its slurmd does not answer. When it runs again, run "
        f"scontrol update nodename={record.name} state=resume"
    )


def _update_reason(record: ChangeRecord, context: SlurmChangeContext) -> None:
    """Replace our reason of a resumed node, which 24.11 keeps, by the outcome of the change."""
    node = waiting.fetch_node(record.name, context)
    if node is not None and not node.draining and is_our_reason(node.reason):
        what = record.change.revision or "another layout"
        done = "was not changed" if record.undoing else f"was changed to {what}"
        with suppress(AliquotError):
            context.slurm.describe(record.name, {"reason": f"aliquot: {done}, takes jobs"[:250]})


def _explain(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """End an undone change: leave the node drained with the reason, or resume it if nothing was touched."""
    if not record.touched:
        return _resume(record, context)
    node = waiting.fetch_node(record.name, context)
    if node is not None and not held_by_others(node):
        context.slurm.drain(record.name, f"aliquot: {record.why}; undone, the previous layout is restored"[:250])
    return record


_STEPS: dict[SlurmStep, Callable[[ChangeRecord, SlurmChangeContext], ChangeRecord]] = {
    "drain": _drain,
    "wait": _wait,
    "stop": _stop,
    "gpus": applying.partition_gpus,
    "files": _files,
    "forget": _forget,
    "tell": reconfigure.update_controller,
    "start": _start,
    "verify": _verify,
    "resume": _resume,
    "explain": _explain,
}
_BESIDE_JOBS: dict[SlurmStep, Callable[[ChangeRecord, SlurmChangeContext], ChangeRecord]] = {
    "wait": slot_steps.wait_for_slots,
    "gate": slot_steps.close_gate,
    "gpus": applying.partition_gpus,
    "files": _files,
    "tell": slot_steps.update_daemons,
    "verify": _verify_slots,
    "release": slot_steps.open_gate,
}
