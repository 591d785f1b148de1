"""The recovery from a kill or a failure: resume an interrupted plan, or restore the previous state of what was touched.

Both trust only the journal and a fresh read, and need no more than the state before the first action.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from aliquot.core.engine.action_text import undone
from aliquot.core.engine.context import ApplyOutcome, ExecutionContext
from aliquot.core.engine.executor import as_aliquot_error, execute
from aliquot.core.engine.journal_step import step_of
from aliquot.core.engine.ports import ApplyStatus, JournalEntry
from aliquot.core.engine.recorded_change import attempted_calls, change_of
from aliquot.core.engine.run import Run
from aliquot.core.engine.step_timing import UNDO
from aliquot.core.model.actions import Action, Create, CreateCompute, CreateVgpu
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan as make
from aliquot.core.planner.restore_point import foreign_instances, make_restore_point, spare_foreign
from aliquot.core.planner.verify import verify
from aliquot.errors import AliquotError, ApplyInterruptedError, BlockedError, StalePlanError
from aliquot.foundation.callbacks import Report


class Work(msgspec.Struct, frozen=True):
    """The work of an apply."""

    plan: Plan
    rest: Plan
    """What is still to be executed: the whole plan, unless a run of it was interrupted."""
    before: Inventory
    """The state before the first action of the plan, to which a rollback returns."""
    attempted: frozenset[tuple[str, str]] = frozenset()
    """GPU and step of the calls that an interrupted run made and the driver did not refuse."""


def resume(plan: Plan, now: Inventory, context: ExecutionContext, report: Report) -> Work:
    """Return what is left of a plan on a node that is no longer as planned for.

    Raises StalePlanError unless the reason is that this plan was executed or interrupted in this boot.
    """
    entries = context.journal.entries()
    begin = next((r for r in entries if r.kind == "begin" and r.boot == context.journal.boot), None)
    ends = [r.text for r in entries if r.kind == "end"]
    if begin is not None and ends in ([], ["done"]):
        change = change_of(begin)
        if change is not None and change.matches_plan(plan) and change.explains(now):
            rest, before = make(now, plan.desired, plan.policy), change.inventory_before(now)
            if not ends and rest.blockers:
                raise BlockedError(
                    rest.blockers[0].message, code=rest.blockers[0].rule, next_step=rest.blockers[0].next_step
                )
            if before is not None and (not ends or not (rest.actions or rest.blockers)):
                if rest.actions:
                    n = len(rest.actions)
                    left = "1 action is left" if n == 1 else f"{n} actions are left"
                    report(f"an earlier run of this plan was interrupted; {left}")
                return Work(plan, rest, before, attempted_calls(change, entries))
    changed = "the node changed since this plan was made"
    if plan.node != now.node:
        changed = f"this plan was made for node {plan.node}, and this is {now.node}"
    raise StalePlanError(
        f"{changed}; nothing was touched",
        details=(f"fingerprint then {plan.fingerprint}, now {now.fingerprint}",),
        next_step="run the command for the desired state again: it makes a new plan",
    )


def report_interrupted_run(plan: Plan, now: Inventory, context: ExecutionContext, report: Report) -> None:
    """Report an apply that was interrupted in this boot after it changed something, if its work is not done yet."""
    entries = context.journal.entries()
    begin = next((r for r in entries if r.kind == "begin"), None)
    kinds = {r.kind for r in entries}
    if begin is None or "end" in kinds or "intent" not in kinds:
        return
    if begin.boot != context.journal.boot:
        return
    change = change_of(begin)
    if change is None:
        report("note: an apply by another version of Aliquot was interrupted; this one starts from the state it left")
        return
    left = {d.gpu for d in verify(now, Desired(change.desired))}
    elsewhere = sorted(left - {w.pci for w in plan.desired.gpus})
    if left:
        more = f"; GPU {', '.join(elsewhere)} is not in its desired state: request it again" if elsewhere else ""
        report(f"note: an earlier apply was interrupted; this one starts from the state it left{more}")


def roll_back(run: Run, work: Work, error: AliquotError) -> ApplyOutcome:
    """Roll back. Raises AliquotError if that fails and the final state cannot even be read; the journal has both
    errors.
    """
    with run.context.timed(UNDO):
        try:
            try:
                return _restore(run, work, error)
            except KeyboardInterrupt:  # a rollback continues in spite of signals
                return _restore(run, work, error)
        except Exception as cause:  # noqa: BLE001 - any error ends a run that failed already
            failure = as_aliquot_error(cause)
            failure.details += (f"it occurred during the rollback after: {error.brief}",)
            _record_failure(run, failure)
            raise failure from (None if failure is cause else cause)


def _restore(run: Run, work: Work, error: AliquotError) -> ApplyOutcome:
    """Restore the previous placed geometry and vGPUs of every touched GPU, each on its own: one lost GPU must not block
    the others.
    """
    context = run.context
    back = run.for_rollback()
    back.note(JournalEntry("undo", run.run_id, text=error.brief), durable=True)
    after = context.backend.read()
    made, touched = _made(run, work.plan), tuple(work.plan.actions_by_gpu)
    sentences = _spared(work.before, after, touched, made)
    plans = {pci: make(after, _goal(work.before, after, made, (pci,)), Policy()) for pci in touched}
    sentences += [f"GPU {pci}: not undone, {each.blockers[0].message}" for pci, each in plans.items() if each.blocked]
    failure = execute(back, {pci: each.actions for pci, each in plans.items()})
    now = context.backend.read()
    drift = verify(now, _goal(work.before, after, made, touched))
    sentences += [undone(action) for each in plans.values() for action in each.actions if not failure]
    if failure is not None:
        sentences.append(f"undoing stopped: {failure.brief}")
    if back.unrecorded or run.unrecorded:
        sentences.append("the journal could not be written while undoing")
    status: ApplyStatus = "partial" if drift else "stopped" if isinstance(error, ApplyInterruptedError) else "undone"
    back.note(JournalEntry("end", run.run_id, text=status), durable=True)
    return ApplyOutcome(status, now, tuple(sentences), run.calls + back.calls, drift, error)


def _record_failure(run: Run, failure: AliquotError) -> None:
    """Record that the rollback failed: its final state is unknown."""
    back = run.for_rollback()
    back.note(JournalEntry("failed", run.run_id, text=failure.brief), durable=False)
    back.note(JournalEntry("end", run.run_id, text="partial"), durable=True)


def _made(run: Run, plan: Plan) -> list[Action]:
    """Return the creations that this run attempted and the driver did not refuse. Another process may have used the
    places of the others.
    """
    creations = [a for a in plan.actions if isinstance(a, Create | CreateCompute | CreateVgpu)]
    return [a for a in creations if (a.gpu, str(step_of(a))) in run.attempted]


def _goal(before: Inventory, after: Inventory, made: list[Action], pcis: Collection[str]) -> Desired:
    """Return the previous state plus what another process created meanwhile."""
    return spare_foreign(make_restore_point(before, pcis), before, after, made)


def _spared(before: Inventory, after: Inventory, pcis: Collection[str], made: list[Action]) -> list[str]:
    """Return a sentence for each instance that another process created on these GPUs."""
    return [
        f"GPU {gpu.pci}: {i.profile} at {i.placement} stays: another process created it meanwhile"
        for gpu in after.gpus
        if gpu.pci in pcis
        for i in foreign_instances(before.gpu(gpu.pci), gpu, made)
    ]
