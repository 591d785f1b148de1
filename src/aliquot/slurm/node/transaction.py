"""A change of one Slurm node, from drain to resume, or its undo: a loop over small steps, each recorded before.

A kill at any time does no harm: the same command, or ``--continue``, repeats the interrupted step. After a failure, the
change is undone, and the node stays drained with the reason. If undoing would not help (slurmctld is unavailable),
everything stays as it is, on record. Jobs are never touched unless requested.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from msgspec.structs import replace

from aliquot.errors import AliquotError, ApplyInterruptedError, BlockedError
from aliquot.slurm.client.errors import BusyError, OldSlurmError, SlurmUnavailableError
from aliquot.slurm.client.models import Gres
from aliquot.slurm.files.slot_board import PAD
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import preconditions as begin
from aliquot.slurm.node import slot_gate, target
from aliquot.slurm.node import step_executor as executor
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext, SlurmChangeOutcome
from aliquot.slurm.node.request import SlurmChange, SlurmNodeSettings, SlurmStep, held_by_others

CONTINUE = "aliquot slurm apply --continue"
_TOUCHING_NOTHING = frozenset({"drain", "wait", "gate", "resume", "explain", "release"})


def apply(change: SlurmChange, context: SlurmChangeContext) -> SlurmChangeOutcome:
    """Apply a change. It takes over an interrupted change of this node and keeps its restore point.

    Raises AliquotError if nothing was touched, or if the change stops midway and is on record; then the next step says
    how to continue. A change that failed and was undone is an outcome, with ``why``.
    """
    earlier = context.file.read()
    record = begin.prepare_change(change, context, earlier)
    if record is None:
        node = waiting.fetch_node(change.settings.name, context)
        assert node is not None
        return SlurmChangeOutcome(
            "nothing",
            change.settings.name,
            "dynamic" if node.dynamic else "static",
            ",".join(map(str, node.gres)),
            drained=node.draining,
            reason=node.reason if node.draining else "",
        )
    context.save(record)
    return _run(record, context)


def continue_change(context: SlurmChangeContext, settings: SlurmNodeSettings | None = None) -> SlurmChangeOutcome:
    """Finish an interrupted change, or its undo if that has begun.

    ``settings`` replace its own, for example to correct commands that failed. Raises BlockedError if no change was
    interrupted.
    """
    record = _open(context, settings)
    if record.undoing:
        context.report(f"{record.name}: finishing the undo of the change ({record.why})")
    return _run(record, context)


def undo_change(context: SlurmChangeContext, settings: SlurmNodeSettings | None = None) -> SlurmChangeOutcome:
    """Undo an interrupted change. ``settings`` are those of ``continue_change``.

    The outcome of an undo that ends is a success: it is what was requested.
    """
    record = replace(_open(context, settings), undo_requested=True)
    if not record.undoing:
        record = replace(record, undoing=True, why="--undo was requested")
        record = replace(record, phase=steps.route(record)[0])
    context.save(record)
    return _run(record, context)


def _open(context: SlurmChangeContext, settings: SlurmNodeSettings | None) -> ChangeRecord:
    record = context.file.read()
    if record is None or record.status != "open":
        raise BlockedError("no change of this node is in progress", code="NO_CHANGE", next_step="aliquot slurm node")
    record = steps.resumed(record)
    return record if settings is None else replace(record, change=replace(record.change, settings=settings))


def _run(record: ChangeRecord, context: SlurmChangeContext) -> SlurmChangeOutcome:
    failure: AliquotError | None = None
    complete = False
    while record.phase:
        try:
            begin_s = context.now()
            step, record = _next_step(record, context)
            record = _execute_step(step, begin_s, record, context)
        except KeyboardInterrupt as stop:
            failure = ApplyInterruptedError.from_signal(getattr(stop, "number", 2))
            if record.phase == "release" and not complete:
                # Jobs may have started already, so nothing leads back from here.
                context.report("the change is complete; the signal arrived after it")
                complete = True
            else:
                record = _turned_back(record, context, failure)
        except Exception as cause:  # noqa: BLE001 - as_aliquot_error names it
            from aliquot.core.engine.executor import as_aliquot_error

            failure = as_aliquot_error(cause)
            record = _turned_back(record, context, failure)
    return _finish(record, context, failure)


def _turned_back(record: ChangeRecord, context: SlurmChangeContext, error: AliquotError) -> ChangeRecord:
    """Return the record of the undo of a change that failed.

    Raises the error if the change stops where it is. A signal stops a change that may have waited for hours for its
    jobs. Beside running jobs, it leads back in seconds.
    """
    stops = isinstance(error, ApplyInterruptedError) and not record.beside_jobs
    if record.undoing or stops or _is_incurable(record, error):
        raise _stopped(record, context, error) from error.__cause__
    _report_failure(record, error, context)
    record = replace(record, undoing=True, why=error.brief)
    record = replace(record, phase=steps.route(record)[0])
    context.save(record, required=False)
    return record


def _report_failure(record: ChangeRecord, error: AliquotError, context: SlurmChangeContext) -> None:
    """Report a failure before its undo, which may take minutes. If nothing was touched, the error itself follows."""
    if not record.touched:
        context.report(f"{record.name}: nothing was changed")
        return
    for line in (f"failed: {error.brief}", *(f"  {each}" for each in error.details)):
        context.report(line)


def _next_step(record: ChangeRecord, context: SlurmChangeContext) -> tuple[SlurmStep, ChangeRecord]:
    """Return the next step, and the record before it. It is touched already, because the step may fail midway.

    A stop of slurmd that fails has touched nothing. After a kill it may have, so the record on disk is touched.
    """
    if record.beside_jobs:
        step = steps.next_step_beside_jobs(record, lambda: slot_gate.is_held(record.name, context))
    else:
        step = steps.next_step(record, lambda: waiting.observe(record.name, context))
    if step == "drain" and not record.touched:
        context.save(record)
    if step == record.phase and step not in _TOUCHING_NOTHING:
        touched = replace(record, touched=True)
        context.save(touched)
        return step, record if step == "stop" else touched
    return step, record


def _execute_step(step: SlurmStep, begin_s: float, record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """Execute a step, and return the record after it. ``begin_s`` is when the step began, by the context's clock."""
    record = executor.execute(step, record, context)
    record = replace(record, steps=(*record.steps, (step, round(context.now() - begin_s, 3))))
    if step == record.phase:
        record = replace(record, touched=record.touched or step == "stop", phase=steps.following_step(record))
        if record.phase:
            context.save(record)
    return record


def _is_incurable(record: ChangeRecord, error: AliquotError) -> bool:
    """Report whether undoing would not help: Slurm is unavailable or too old, or the update of slurmctld failed."""
    if not record.touched or isinstance(error, ApplyInterruptedError):
        return False
    jobs_in_the_way = record.beside_jobs and isinstance(error, BusyError)
    at_a_point_of_no_return = record.phase in ("tell", "release")
    return isinstance(error, SlurmUnavailableError | OldSlurmError) or jobs_in_the_way or at_a_point_of_no_return


def _stopped(record: ChangeRecord, context: SlurmChangeContext, error: AliquotError) -> AliquotError:
    """Return the error of a change that stops midway, on record, with the commands that continue or undo it."""
    context.save(record, required=False)
    if record.undoing and record.drained and record.touched:
        with suppress(AliquotError):
            node = waiting.fetch_node(record.name, context)
            if node is not None and not held_by_others(node):
                context.slurm.drain(record.name, f"aliquot: {record.why}; undoing it failed: {error.brief}"[:250])
    why = (f"It was being undone because: {record.why}",) if record.undoing else ()
    error.details = (
        *error.details,
        *why,
        *((f"This may help: {error.next_step}",) if error.next_step else ()),
        f"The change of {record.name} stopped at step '{record.phase}' and is on record; "
        f"the node takes no {'new ' if record.beside_jobs else ''}jobs.",
        f"To undo it: aliquot slurm apply --undo --node-name {record.name}",
    )
    error.next_step = f"{CONTINUE} --node-name {record.name}"
    return error


def _finish(record: ChangeRecord, context: SlurmChangeContext, failure: AliquotError | None) -> SlurmChangeOutcome:
    if record.undoing and not record.touched:
        context.save(replace(record, status="refused"), required=False)
        if failure is not None:
            raise failure
    record = replace(record, status="undone" if record.undoing else "done")
    context.save(record, required=False)
    node = waiting.fetch_node(record.name, context)
    gone = _vanished_types(record, context) if record.status == "done" else ()
    return SlurmChangeOutcome(
        record.status,
        record.name,
        record.kind,
        target.gres_text(record),
        revision=record.change.revision,
        drained=node is None or node.draining,
        reason=node.reason if node and node.draining else "",
        notes=(*record.expected.notes, *record.dropped, *gone),
        steps=record.steps,
        why=record.why,
        code=failure.code if failure else "",
        exit_code=_exit_code(record, failure),
    )


def _exit_code(record: ChangeRecord, failure: AliquotError | None) -> int:
    if failure is not None:
        return failure.exit_code
    if record.dropped and not record.undoing:
        return 20
    return 20 if record.undoing and not record.undo_requested else 0


def _vanished_types(record: ChangeRecord, context: SlurmChangeContext) -> tuple[str, ...]:
    """Return a note for types that the change removed and that no node of the cluster has now.

    Slurm holds a pending job that requests one (BadConstraints), and does not release it on its own. Returns no note if
    Slurm does not answer.
    """
    gone = _types(record.restore_point.gres) - _types(record.expected.gres)
    if not gone:
        return ()
    try:
        gone -= {kind for node in context.slurm.nodes() for kind in _types(node.gres)}
    except AliquotError:
        return ()
    if not gone:
        return ()
    return (
        f"no node has {', '.join(sorted(gone))} now: Slurm may hold jobs that request it. "
        "'squeue --states=PENDING --Format=JobID,UserName,tres-per-node,tres-per-job,Reason' shows them, and "
        "'scontrol release JOB' releases one when a node has it again",
    )


def _types(gres: Iterable[Gres]) -> set[str]:
    return {each.type for each in gres if each.name == "gpu" and each.type not in ("", PAD)}
