"""Apply a plan exactly and verify the result, or roll back.

The steps: lock, fingerprint, journal, act, read again, verify. A failure on any GPU stops the others at their next
action, and every touched GPU returns to its previous placed geometry. After a kill at any time the next run can plan
again: intents are on disk before each action, and the plan is a function of the inventory.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

import msgspec

from aliquot.core.engine.context import ApplyOutcome, ExecutionContext
from aliquot.core.engine.executor import as_aliquot_error, execute
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.recorded_change import encode_change, record_change
from aliquot.core.engine.recovery import Work, report_interrupted_run, resume, roll_back
from aliquot.core.engine.run import Run
from aliquot.core.engine.step_timing import HOOKS, LOCK, READ, RECORD, VERIFY
from aliquot.core.model.actions import Reset, SetMode
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Drift, Plan
from aliquot.core.planner.verify import verify
from aliquot.errors import AliquotError, ApplyInterruptedError, BlockedError, HardwareError, StalePlanError
from aliquot.foundation.callbacks import Report

PlanCheck = Callable[[Plan, Inventory], None]
"""Refuses a plan for a node, by raising an AliquotError."""


def apply(plan: Plan, context: ExecutionContext, report: Report, *, check: PlanCheck | None = None) -> ApplyOutcome:
    """Apply a plan. Later failures are in the outcome; each of these errors means that nothing was touched.

    Raises BlockedError for a plan with blockers, StalePlanError if the node changed since, LockedError if another
    process holds the lock, StorageError if the journal cannot be written. A plan from a file may have been edited:
    ``check`` is called with the node as read under the lock, and raises what refuses it (``saved_plan.confirm``).
    """
    if plan.blocked:
        raise BlockedError(plan.blockers[0].message, code=plan.blockers[0].rule, next_step=plan.blockers[0].next_step)
    with ExitStack() as stack:
        with context.timed(LOCK):
            stack.enter_context(context.lock.hold())
        failed: AliquotError | None = None
        try:
            context.hooks.fire("apply-start")
            outcome = _locked(plan, context, report, check)
            failed = outcome.error
        except AliquotError as error:
            failed = error
            raise
        finally:
            _exit_hook(context, failed)
    return outcome


def _exit_hook(context: ExecutionContext, failed: AliquotError | None) -> None:
    """Run ``apply-exit``, always. Its own failure counts only if nothing failed before."""
    try:
        context.hooks.fire("apply-exit")
    except AliquotError:
        if failed is None:
            raise


def _locked(plan: Plan, context: ExecutionContext, report: Report, check: PlanCheck | None) -> ApplyOutcome:
    with context.timed(READ):
        now = context.backend.read()
    if now.fingerprint != plan.fingerprint:
        work = resume(plan, now, context, report)
    else:
        if check is not None:
            check(plan, now)
        work = Work(plan, plan, before=now)
    if not work.rest.actions:
        drift = _verify(work.rest, now)
        if drift:
            raise StalePlanError(drift[0].message, next_step="aliquot plan")
        _record_desired(plan, now, context, report)
        return ApplyOutcome("nothing", now)
    report_interrupted_run(plan, now, context, report)
    run = Run(context, plan.policy, context.journal.new_run(), report, attempted=work.attempted)
    reached = _execute(run, work)
    if isinstance(reached, AliquotError):
        outcome = roll_back(run, work, reached)
        _run_uninterrupted(lambda: _update_dependents(run, outcome.inventory))
        return outcome
    _finish(run, plan, reached)
    return ApplyOutcome("reboot" if work.rest.reboots else "done", reached, calls=run.calls)


def _execute(run: Run, work: Work) -> Inventory | AliquotError:
    """Execute the rest of a plan. Returns the inventory of a fresh read, or the error if it is not as planned.

    Raises StorageError if the begin entry cannot be written: nothing was touched then.
    """
    context = run.context
    begun = False
    try:
        _begin(run, work)
        begun = True
        error = _hooks(work.rest, context) or execute(run, work.rest.actions_by_gpu)
        if error is not None:
            return error
        with context.timed(VERIFY):
            after = context.backend.read()
            return _disagreement(work.rest, after) or after
    except KeyboardInterrupt as stop:
        return ApplyInterruptedError.from_signal(getattr(stop, "number", 2))
    except Exception as cause:
        if not begun:
            raise
        return as_aliquot_error(cause)


def _finish(run: Run, plan: Plan, after: Inventory) -> None:
    """Write the last entries. A signal takes effect after them: the change is complete and verified by now."""
    stopped = _run_uninterrupted(
        lambda: _end(run),
        lambda: _record_desired(plan, after, run.context, run.report),
        lambda: _update_dependents(run, after),
    )
    if stopped is not None:
        run.report("the change is complete; the signal arrived after it")
        raise stopped


def _run_uninterrupted(*steps: Callable[[], None]) -> KeyboardInterrupt | None:
    """Run each step completely and return the signal that arrived meanwhile, if any.

    A caller that rolled back ignores the signal: the run has failed, and its outcome has the reason.
    """
    stopped: KeyboardInterrupt | None = None
    for step in steps:
        try:
            step()
        except KeyboardInterrupt as stop:
            stopped = stop
            step()
    return stopped


def _begin(run: Run, work: Work) -> None:
    """Write the first entry: the change and the state before it."""
    begin = JournalEntry(
        "begin",
        run.run_id,
        boot=run.context.journal.boot,
        text=work.plan.desired.name,
        change=encode_change(record_change(work.plan, work.before, work.attempted)),
    )
    with run.context.timed(RECORD):
        run.context.journal.append(begin, durable=True)


def _disagreement(work: Plan, after: Inventory) -> HardwareError | None:
    """Return an error if the inventory is not as planned, else None."""
    drift = _verify(work, after)
    if not drift:
        return None
    return HardwareError(
        f"every call succeeded, but a fresh read disagrees: {drift[0].message}",
        details=tuple(d.message for d in drift[1:]),
    )


def _end(run: Run) -> None:
    """Write the last entry. The change is complete and verified: a failure to write is only reported."""
    try:
        run.context.journal.append(JournalEntry("end", run.run_id, text="done"), durable=True)
    except Exception as failure:  # noqa: BLE001 - the change is complete
        run.report(f"the change is complete, but its end was not recorded: {as_aliquot_error(failure).brief}")


def _record_desired(plan: Plan, after: Inventory, context: ExecutionContext, report: Report) -> None:
    """Record the request for the next boot. The change is complete: a failure to write is only reported."""
    try:
        context.boot_record.record(plan.desired, after)
    except Exception as failure:  # noqa: BLE001 - the change is complete
        report(f"note: the change is complete, but not recorded for the next boot: {as_aliquot_error(failure).brief}")


def _update_dependents(run: Run, after: Inventory) -> None:
    """Update what depends on the GPUs, also after a rollback, which creates new instances."""
    try:
        if run.calls:
            run.context.update_dependents(after, run.report)
    except Exception as failure:  # noqa: BLE001 - the GPUs are in the right state
        run.report(f"note: what depends on the GPUs was not updated: {as_aliquot_error(failure).brief}")


def _verify(plan: Plan, inventory: Inventory) -> tuple[Drift, ...]:
    """Return the drift on the GPUs of the plan, except those that wait for a reboot."""
    waiting = set(plan.reboots)
    desired_gpus = tuple(w for w in plan.desired.gpus if w.pci not in waiting)
    return verify(inventory, msgspec.structs.replace(plan.desired, gpus=desired_gpus))


def _hooks(plan: Plan, context: ExecutionContext) -> AliquotError | None:
    try:
        with context.timed(HOOKS):
            if any(isinstance(a, SetMode | Reset) for a in plan.actions):
                context.hooks.fire("pre-apply-mode")
            if any(not isinstance(a, SetMode | Reset) for a in plan.actions):
                context.hooks.fire("pre-apply-config")
    except AliquotError as error:
        return error
    return None
