"""One change of one Slurm node, from drain to resume, or back: a loop over small steps, on record before each.

A kill at any instant costs nothing: the same command, or ``--continue``, does the step again that was under way. A
failure undoes what was done and leaves the node drained, with the reason. A failure that undoing would not cure
(slurmctld away) leaves everything as it is, on record. Jobs are never touched unless that was asked.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec.structs import replace

from aliquot.errors import AliquotError, BlockedError, CutOffError
from aliquot.slurm.client.errors import AwayError, OldSlurmError
from aliquot.slurm.node import next_step as steps
from aliquot.slurm.node import preconditions as begin
from aliquot.slurm.node import step_executor as acts
from aliquot.slurm.node import target as aim
from aliquot.slurm.node import waits as waiting
from aliquot.slurm.node.change_record import DONE, OPEN, REFUSED, UNDONE, Record
from aliquot.slurm.node.context import Outcome, World
from aliquot.slurm.node.request import Change, Settings, held
from aliquot.slurm.node.vanished_types import vanished

CONTINUE = "aliquot slurm apply --continue"


def apply(change: Change, world: World) -> Outcome:
    """Make the change. One that was cut off on this node is taken over: its way back is kept.

    Raises AliquotError where nothing was touched, or where the change stops half-way and is on record (the next step
    says how to go on). A change that failed and was undone is an outcome, with ``why``.
    """
    earlier = world.file.read()
    record = begin.begin(change, world, earlier)
    if record is None:
        node = waiting.record_of(change.settings.name, world)
        assert node is not None
        return Outcome(
            "nothing",
            change.settings.name,
            "dynamic" if node.dynamic else "static",
            ",".join(map(str, node.gres)),
            drained=node.draining,
            reason=node.reason if node.draining else "",
        )
    world.keep(record)
    return _run(record, world)


def go_on(world: World, settings: Settings | None = None) -> Outcome:
    """Finish what was cut off; with ``settings``, by those from here on: commands that failed are typed anew. Raises
    BlockedError where nothing was cut off.
    """
    return _run(_open(world, settings), world)


def go_back(world: World, settings: Settings | None = None) -> Outcome:
    """Undo what was cut off, as ``go_on`` finishes it."""
    record = _open(world, settings)
    if not record.back:
        record = replace(record, back=True, why="it was called back")
        record = replace(record, phase=steps.route(record)[0])
        world.keep(record)
    return _run(record, world)


def _open(world: World, settings: Settings | None) -> Record:
    record = world.file.read()
    if record is None or record.status != OPEN:
        raise BlockedError("no change of this node is under way", next_step="aliquot slurm node")
    return record if settings is None else replace(record, change=replace(record.change, settings=settings))


def _run(record: Record, world: World) -> Outcome:
    failure: AliquotError | None = None
    while record.phase:
        try:
            record = _one(record, world)
        except KeyboardInterrupt as stop:
            raise _stopped(record, world, CutOffError.by(getattr(stop, "number", 2))) from None
        except Exception as cause:
            from aliquot.core.engine.gpu_executor import as_fault

            error = as_fault(cause)
            if record.back or isinstance(error, CutOffError) or _to_stay(record, error):
                raise _stopped(record, world, error) from cause
            failure = error
            for line in (f"failed: {error.brief}", *(f"  {each}" for each in error.details)):
                world.say(line)
            record = replace(record, back=True, why=error.brief)
            record = replace(record, phase=steps.route(record)[0])
            world.keep(record, must=False)
    return _ended(record, world, failure)


def _one(record: Record, world: World) -> Record:
    """The next step, and the record behind it."""
    begin_s = world.now()
    step = steps.next_step(record, lambda: waiting.look(record.name, world))
    if step == steps.DRAIN and not record.touched:
        world.keep(record)
    if step == record.phase and step not in (steps.DRAIN, steps.WAIT, steps.RESUME, steps.EXPLAIN):
        record = replace(record, touched=True)
        world.keep(record)
    record = acts.act(step, record, world)
    record = replace(record, steps=(*record.steps, (step, round(world.now() - begin_s, 3))))
    if step == record.phase:
        record = replace(record, phase=steps.after(record))
        if record.phase:
            world.keep(record)
    return record


def _to_stay(record: Record, error: AliquotError) -> bool:
    """Failures that undoing would not cure: Slurm is away, somebody let jobs on the half-changed node, or a restart by
    hand has not come yet.
    """
    if not record.touched:
        return False
    return isinstance(error, AwayError | OldSlurmError) or record.phase == steps.TELL


def _stopped(record: Record, world: World, error: AliquotError) -> AliquotError:
    """The change stands still, on record: the error says so, and what goes on from there."""
    world.keep(record, must=False)
    if record.back and record.drained and record.touched:
        with suppress(AliquotError):
            node = waiting.record_of(record.name, world)
            if node is not None and not held(node):
                world.slurm.drain(record.name, f"aliquot: {record.why}; undoing it failed: {error.brief}"[:250])
    error.details = (
        *error.details,
        *((f"what may help: {error.next_step}",) if error.next_step else ()),
        f"the change of {record.name} stands at step '{record.phase}', on record; the node takes no jobs",
        f"to undo it: aliquot slurm apply --undo --node-name {record.name}",
    )
    error.next_step = f"{CONTINUE} --node-name {record.name}"
    return error


def _ended(record: Record, world: World, failure: AliquotError | None) -> Outcome:
    if record.back and not record.touched:
        world.keep(replace(record, status=REFUSED), must=False)
        if failure is not None:
            raise failure
    record = replace(record, status=UNDONE if record.back else DONE)
    world.keep(record, must=False)
    node = waiting.record_of(record.name, world)
    gone = vanished(record, world) if record.status == DONE else ()
    return Outcome(
        record.status,
        record.name,
        record.kind,
        aim.gres_text(record),
        revision=record.change.revision,
        drained=node is None or node.draining,
        reason=node.reason if node and node.draining else "",
        notes=(*record.meant.notes, *gone),
        steps=record.steps,
        why=record.why,
        code=failure.code if failure else "",
        exit_code=failure.exit_code if failure else 20 if record.back else 0,
    )
