"""One change of one Slurm node, from drain to resume, or back: a loop over small steps, on record before each.

A kill at any instant costs nothing: the same command, or ``--continue``, does the step again that was under way. A
failure undoes what was done and leaves the node drained, with the reason. A failure that undoing would not cure
(slurmctld away) leaves everything as it is, on record. Jobs are never touched unless that was asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from msgspec.structs import replace

from aliquot.errors import AliquotError, ApplyInterruptedError, BlockedError
from aliquot.slurm.client.errors import OldSlurmError, SlurmUnavailableError
from aliquot.slurm.client.models import Gres
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import preconditions as begin
from aliquot.slurm.node import step_executor as acts
from aliquot.slurm.node import target
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import ChangeRecord
from aliquot.slurm.node.context import SlurmChangeContext, SlurmChangeOutcome
from aliquot.slurm.node.request import SlurmChange, SlurmNodeSettings, held_by_others

CONTINUE = "aliquot slurm apply --continue"


def apply(change: SlurmChange, context: SlurmChangeContext) -> SlurmChangeOutcome:
    """Make the change. One that was cut off on this node is taken over: its way back is kept.

    Raises AliquotError where nothing was touched, or where the change stops half-way and is on record (the next step
    says how to go on). A change that failed and was undone is an outcome, with ``why``.
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
    """Finish what was cut off; with ``settings``, by those from here on: commands that failed are typed anew. Raises
    BlockedError where nothing was cut off.
    """
    return _run(_open(context, settings), context)


def undo_change(context: SlurmChangeContext, settings: SlurmNodeSettings | None = None) -> SlurmChangeOutcome:
    """Undo what was cut off, as ``continue_change`` finishes it."""
    record = _open(context, settings)
    if not record.undoing:
        record = replace(record, undoing=True, why="it was called back")
        record = replace(record, phase=steps.route(record)[0])
        context.save(record)
    return _run(record, context)


def _open(context: SlurmChangeContext, settings: SlurmNodeSettings | None) -> ChangeRecord:
    record = context.file.read()
    if record is None or record.status != "open":
        raise BlockedError("no change of this node is under way", next_step="aliquot slurm node")
    return record if settings is None else replace(record, change=replace(record.change, settings=settings))


def _run(record: ChangeRecord, context: SlurmChangeContext) -> SlurmChangeOutcome:
    failure: AliquotError | None = None
    while record.phase:
        try:
            record = _execute_step(record, context)
        except KeyboardInterrupt as stop:
            raise _stopped(record, context, ApplyInterruptedError.from_signal(getattr(stop, "number", 2))) from None
        except Exception as cause:
            from aliquot.core.engine.gpu_executor import as_aliquot_error

            error = as_aliquot_error(cause)
            if record.undoing or isinstance(error, ApplyInterruptedError) or _is_incurable(record, error):
                raise _stopped(record, context, error) from cause
            failure = error
            for line in (f"failed: {error.brief}", *(f"  {each}" for each in error.details)):
                context.report(line)
            record = replace(record, undoing=True, why=error.brief)
            record = replace(record, phase=steps.route(record)[0])
            context.save(record, required=False)
    return _finish(record, context, failure)


def _execute_step(record: ChangeRecord, context: SlurmChangeContext) -> ChangeRecord:
    """The next step, and the record behind it."""
    begin_s = context.now()
    step = steps.next_step(record, lambda: waiting.observe(record.name, context))
    if step == "drain" and not record.touched:
        context.save(record)
    if step == record.phase and step not in ("drain", "wait", "resume", "explain"):
        record = replace(record, touched=True)
        context.save(record)
    record = acts.execute(step, record, context)
    record = replace(record, steps=(*record.steps, (step, round(context.now() - begin_s, 3))))
    if step == record.phase:
        record = replace(record, phase=steps.following_step(record))
        if record.phase:
            context.save(record)
    return record


def _is_incurable(record: ChangeRecord, error: AliquotError) -> bool:
    """Failures that undoing would not cure: Slurm is away, somebody let jobs on the half-changed node, or a restart by
    hand has not come yet.
    """
    if not record.touched:
        return False
    return isinstance(error, SlurmUnavailableError | OldSlurmError) or record.phase == "tell"


def _stopped(record: ChangeRecord, context: SlurmChangeContext, error: AliquotError) -> AliquotError:
    """The change stands still, on record: the error says so, and what goes on from there."""
    context.save(record, required=False)
    if record.undoing and record.drained and record.touched:
        with suppress(AliquotError):
            node = waiting.fetch_node(record.name, context)
            if node is not None and not held_by_others(node):
                context.slurm.drain(record.name, f"aliquot: {record.why}; undoing it failed: {error.brief}"[:250])
    error.details = (
        *error.details,
        *((f"what may help: {error.next_step}",) if error.next_step else ()),
        f"the change of {record.name} stands at step '{record.phase}', on record; the node takes no jobs",
        f"to undo it: aliquot slurm apply --undo --node-name {record.name}",
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
        notes=(*record.expected.notes, *gone),
        steps=record.steps,
        why=record.why,
        code=failure.code if failure else "",
        exit_code=failure.exit_code if failure else 20 if record.undoing else 0,
    )


def _vanished_types(record: ChangeRecord, context: SlurmChangeContext) -> tuple[str, ...]:
    """A sentence for the types that the change took away and that no record of the cluster has any more: Slurm holds a
    pending job that asks for one (BadConstraints), and does not let it go by itself. None where Slurm does not answer.
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
        f"no node has {', '.join(sorted(gone))} now: Slurm may hold jobs that ask for it; "
        "'squeue --states=PENDING --Format=JobID,UserName,tres-per-node,tres-per-job,Reason' shows them, and "
        "'scontrol release JOB' lets one go when a node has it again",
    )


def _types(gres: Iterable[Gres]) -> set[str]:
    return {each.type for each in gres if each.name == "gpu" and each.type}
