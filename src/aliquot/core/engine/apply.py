"""Carry out exactly a plan, prove that it happened, or go back.

Lock, fingerprint, journal, act, read again, verify. A failure on any GPU stops the others at their next action and
everything that was touched goes back to the former placed geometry. A kill at any instant leaves a state from which
the next run plans afresh: intents are on disk before the act, and the plan is a function of what is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack

import msgspec

from aliquot.core.config.boot_record import merge_requests
from aliquot.core.engine.context import ApplyOutcome, ExecutionContext
from aliquot.core.engine.executor import execute
from aliquot.core.engine.gpu_executor import as_aliquot_error
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.recorded_change import encode_change, record_change
from aliquot.core.engine.resume import report_interrupted_run, resume
from aliquot.core.engine.rollback import record_failed_rollback, undo
from aliquot.core.engine.run import Run
from aliquot.core.engine.saved_plan import confirm
from aliquot.core.engine.step_timing import HOOKS, LOCK, READ, RECORD, UNDO, VERIFY
from aliquot.core.model.actions import Reset, SetMode
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Drift, Plan
from aliquot.core.planner.verify import verify
from aliquot.errors import AliquotError, ApplyInterruptedError, BlockedError, HardwareError, StalePlanError
from aliquot.foundation.callbacks import Report

FinalStep = Callable[[Run, Plan, Inventory], None]


def apply(plan: Plan, context: ExecutionContext, report: Report, *, saved: bool = False) -> ApplyOutcome:
    """Carry out a plan. Raises BlockedError for a plan with blockers, MovedError if the machine changed since,
    LockedError if another process is at it, StorageError if nothing can be recorded: in all of these nothing was
    touched. Everything that fails later is in the outcome.

    A ``saved`` plan comes from a file that may have been edited. Raises PlanMismatchError unless the planner makes the
    same plan again.
    """
    if plan.blocked:
        raise BlockedError(plan.blockers[0].message, next_step=plan.blockers[0].next_step)
    with ExitStack() as stack:
        with context.timed(LOCK):
            stack.enter_context(context.lock.hold())
        failed: AliquotError | None = None
        try:
            context.hooks.fire("apply-start")
            outcome = _locked(plan, context, report, saved=saved)
            failed = outcome.error
        except AliquotError as error:
            failed = error
            raise
        finally:
            _exit_hook(context, failed)
    return outcome


def _exit_hook(context: ExecutionContext, failed: AliquotError | None) -> None:
    """``apply-exit`` fires always; its own failure counts only if nothing failed before."""
    try:
        context.hooks.fire("apply-exit")
    except AliquotError:
        if failed is None:
            raise


def _locked(plan: Plan, context: ExecutionContext, report: Report, *, saved: bool) -> ApplyOutcome:
    with context.timed(READ):
        now = before = context.backend.read()
    work, attempted = plan, frozenset[tuple[str, str]]()
    if now.fingerprint != plan.fingerprint:
        work, before, attempted = resume(plan, now, context, report)
    elif saved:
        confirm(plan, now)
    if not work.actions:
        drift = _verify(work, now)
        if drift:
            raise StalePlanError(drift[0].message, next_step="aliquot plan")
        _record_desired(Run(context, plan.policy, "", report), plan, now)
        return ApplyOutcome("nothing", now)
    report_interrupted_run(plan, now, context, report)
    run = Run(context, plan.policy, context.journal.new_run(), report, attempted=attempted)
    reached = _execute_plan(run, work, plan, before)
    if isinstance(reached, AliquotError):
        outcome = _roll_back(run, before, plan, reached)
        _run_uninterrupted(run, plan, outcome.inventory, (_update_dependents,))
        return outcome
    _finish(run, plan, reached)
    return ApplyOutcome("reboot" if work.reboots else "done", reached, calls=run.calls)


def _execute_plan(run: Run, work: Plan, plan: Plan, before: Inventory) -> Inventory | AliquotError:
    """Carry out what is left of a plan. Returns what a fresh read shows, or why that is not what was planned. Raises
    StorageError where the beginning cannot be recorded: nothing was touched then.
    """
    context = run.context
    begun = False
    try:
        _begin(run, plan, before)
        begun = True
        error = _hooks(work, context) or execute(run, work)
        if error is not None:
            return error
        with context.timed(VERIFY):
            after = context.backend.read()
            return _disagreement(work, after) or after
    except KeyboardInterrupt as stop:
        return ApplyInterruptedError.from_signal(getattr(stop, "number", 2))
    except Exception as cause:
        if not begun:
            raise
        return as_aliquot_error(cause)


def _roll_back(run: Run, before: Inventory, plan: Plan, error: AliquotError) -> ApplyOutcome:
    """Go back. Raises AliquotError where that fails so that not even a fresh read shows where it ended; the journal has
    both errors.
    """
    with run.context.timed(UNDO):
        try:
            try:
                return undo(run, before, plan, error)
            except KeyboardInterrupt:  # on the way back: it goes on from where that was
                return undo(run, before, plan, error)
        except Exception as cause:  # noqa: BLE001 - whatever it is, it ends a run that failed already
            failure = as_aliquot_error(cause)
            failure.details += (f"it came while going back from: {error.brief}",)
            record_failed_rollback(run, failure)
            raise failure from (None if failure is cause else cause)


def _finish(run: Run, plan: Plan, after: Inventory) -> None:
    """The last records. A signal takes effect after them: all is done and proved by now."""
    stopped = _run_uninterrupted(run, plan, after, (_end, _record_desired, _update_dependents))
    if stopped is not None:
        run.report("all is done; the signal came after that")
        raise stopped


def _run_uninterrupted(run: Run, plan: Plan, after: Inventory, steps: Iterable[FinalStep]) -> KeyboardInterrupt | None:
    """Each record whole; the signal that came meanwhile. On the way back it changes nothing: the run has failed, and
    its outcome says of what.
    """
    stopped: KeyboardInterrupt | None = None
    for step in steps:
        try:
            step(run, plan, after)
        except KeyboardInterrupt as stop:
            stopped = stop
            step(run, plan, after)
    return stopped


def _begin(run: Run, plan: Plan, before: Inventory) -> None:
    """The first record: what is to be done, and what was there before."""
    begin = JournalEntry(
        "begin",
        run.run_id,
        boot=run.context.journal.boot,
        text=plan.desired.name,
        change=encode_change(record_change(plan, before, run.attempted)),
    )
    with run.context.timed(RECORD):
        run.context.journal.append(begin, durable=True)


def _disagreement(work: Plan, after: Inventory) -> HardwareError | None:
    """Why what is there now is not what the plan said; None where it is."""
    drift = _verify(work, after)
    if not drift:
        return None
    return HardwareError(
        f"every call succeeded, but a fresh read disagrees: {drift[0].message}",
        details=tuple(d.message for d in drift[1:]),
    )


def _end(run: Run, plan: Plan, after: Inventory) -> None:
    """The last record. All is done and proved by now: where it cannot be written, that is said and is no failure."""
    try:
        run.context.journal.append(JournalEntry("end", run.run_id, text="done"), durable=True)
    except Exception as failure:  # noqa: BLE001 - whatever it is, all is done
        run.report(f"all is done, but that was not recorded: {as_aliquot_error(failure).brief}")


def _record_desired(run: Run, plan: Plan, after: Inventory) -> None:
    """Keep the wish for the next boot. What was asked is there by now: a record that cannot be written is said, and is
    no failure.
    """
    store = run.context.boot_record
    try:
        previous = store.load()
        now = merge_requests(previous, plan.desired, after)
        if now != previous:
            store.save(now)
    except Exception as failure:  # noqa: BLE001 - whatever it is, all is done
        run.report(
            f"note: the wish holds, but it was not recorded for the next boot: {as_aliquot_error(failure).brief}"
        )


def _update_dependents(run: Run, plan: Plan, after: Inventory) -> None:
    """Bring what depends on the GPUs after them: also after a way back, whose instances are new ones."""
    try:
        if run.calls:
            run.context.update_dependents(after, run.report)
    except Exception as failure:  # noqa: BLE001 - whatever it is, the GPUs are as they should be
        run.report(f"note: what follows the GPUs does not: {as_aliquot_error(failure).brief}")


def _verify(plan: Plan, inventory: Inventory) -> tuple[Drift, ...]:
    """Drift on the GPUs of the plan, those aside that wait for a reboot."""
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
