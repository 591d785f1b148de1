"""Carry out exactly a plan, prove that it happened, or go back.

Lock, fingerprint, journal, act, read again, verify. A failure on any GPU stops the others at their next action and
everything that was touched goes back to the former placed geometry. A kill at any instant leaves a state from which
the next run plans afresh: intents are on disk before the act, and the plan is a function of what is.
"""

from __future__ import annotations

from contextlib import ExitStack

import msgspec

from aliquot.core.config.boot_record import kept
from aliquot.core.engine.context import Outcome, Report, World
from aliquot.core.engine.executor import carry_out
from aliquot.core.engine.gpu_executor import Run, as_fault
from aliquot.core.engine.ports import Record
from aliquot.core.engine.recorded_change import encoded, recorded
from aliquot.core.engine.resume import resume, tell_of_a_cut_off_run
from aliquot.core.engine.rollback import undo
from aliquot.core.engine.saved_plan import confirm
from aliquot.core.engine.step_timing import HOOKS, LOCK, READ, RECORD, UNDO, VERIFY
from aliquot.core.model.actions import Reset, SetMode
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Drift, Plan
from aliquot.core.planner.verify import verify
from aliquot.errors import AliquotError, BlockedError, CutOffError, HardwareError, MovedError, StorageError


def apply(plan: Plan, world: World, report: Report, *, saved: bool = False) -> Outcome:
    """Carry out a plan. Raises BlockedError for a plan with blockers, MovedError if the machine changed since,
    LockedError if another process is at it, StorageError if nothing can be recorded: in all of these nothing was
    touched. Everything that fails later is in the outcome.

    A ``saved`` plan comes from a file that may have been edited. Raises PlanMismatchError unless the planner makes the
    same plan again.
    """
    if plan.blocked:
        raise BlockedError(plan.blockers[0].message, next_step=plan.blockers[0].next_step)
    with ExitStack() as held:
        with world.timed(LOCK):
            held.enter_context(world.lock.hold())
        failed: AliquotError | None = None
        try:
            world.hooks.fire("apply-start")
            outcome = _locked(plan, world, report, saved=saved)
            failed = outcome.error
        except AliquotError as error:
            failed = error
            raise
        finally:
            _exit_hook(world, failed)
    return outcome


def _exit_hook(world: World, failed: AliquotError | None) -> None:
    """``apply-exit`` fires always; its own failure counts only if nothing failed before."""
    try:
        world.hooks.fire("apply-exit")
    except AliquotError:
        if failed is None:
            raise


def _locked(plan: Plan, world: World, report: Report, *, saved: bool) -> Outcome:
    with world.timed(READ):
        now = before = world.backend.read()
    work, attempted = plan, frozenset[tuple[str, str]]()
    if now.fingerprint != plan.fingerprint:
        work, before, attempted = resume(plan, now, world, report)
    elif saved:
        confirm(plan, now)
    if not work.actions:
        drift = _verify(work, now)
        if drift:
            raise MovedError(drift[0].message, next_step="aliquot plan")
        _remember(plan, now, world, report)
        return Outcome("nothing", now)
    tell_of_a_cut_off_run(plan, now, world, report)
    run = Run(world, plan.policy, world.journal.new_run(), report, attempted=attempted)
    _begin(run, plan, before)
    try:
        error = _hooks(work, world) or carry_out(run, work)
    except KeyboardInterrupt as stop:
        error = CutOffError.by(getattr(stop, "number", 2))
    except Exception as cause:  # noqa: BLE001 - whatever it is, what was begun goes back
        error = as_fault(cause)
    with world.timed(VERIFY):
        after = world.backend.read()
        error = error or _disagreement(work, after)
    if error is None:
        _end(run)
        _remember(plan, after, world, report)
        status = "reboot" if work.reboots else "done"
        return Outcome(status, after, calls=run.calls)
    with world.timed(UNDO):
        try:
            return undo(run, before, after, plan, error)
        except KeyboardInterrupt:  # on the way back: it goes on from where that was
            return undo(run, before, world.backend.read(), plan, error)


def _begin(run: Run, plan: Plan, before: Inventory) -> None:
    """The first record: what is to be done, and what was there before."""
    begin = Record(
        "begin",
        run.run,
        boot=run.world.journal.boot,
        text=plan.desired.name,
        change=encoded(recorded(plan, before, run.attempted)),
    )
    with run.world.timed(RECORD):
        run.world.journal.append(begin, durable=True)


def _disagreement(work: Plan, after: Inventory) -> HardwareError | None:
    """Why what is there now is not what the plan said; None where it is."""
    drift = _verify(work, after)
    if not drift:
        return None
    return HardwareError(
        f"every call succeeded, but a fresh read disagrees: {drift[0].message}",
        details=tuple(d.message for d in drift[1:]),
    )


def _end(run: Run) -> None:
    """The last record. All is done and proved by now: where it cannot be written, that is said and is no failure."""
    try:
        run.world.journal.append(Record("end", run.run, text="done"), durable=True)
    except StorageError as failure:
        run.report(f"all is done, but that was not recorded: {failure.brief}")


def _remember(plan: Plan, after: Inventory, world: World, report: Report) -> None:
    """Keep the wish for the next boot. What was asked is there by now: a record that cannot be written is said, and is
    no failure.
    """
    try:
        former = world.wishes.load()
        now = kept(former, plan.desired, after)
        if now != former:
            world.wishes.save(now)
    except StorageError as failure:
        report(f"note: the wish holds, but it was not recorded for the next boot: {failure.brief}")


def _verify(plan: Plan, inventory: Inventory) -> tuple[Drift, ...]:
    """Drift on the GPUs of the plan, those aside that wait for a reboot."""
    waiting = set(plan.reboots)
    wishes = tuple(w for w in plan.desired.gpus if w.pci not in waiting)
    return verify(inventory, msgspec.structs.replace(plan.desired, gpus=wishes))


def _hooks(plan: Plan, world: World) -> AliquotError | None:
    try:
        with world.timed(HOOKS):
            if any(isinstance(a, SetMode | Reset) for a in plan.actions):
                world.hooks.fire("pre-apply-mode")
            if any(not isinstance(a, SetMode | Reset) for a in plan.actions):
                world.hooks.fire("pre-apply-config")
    except AliquotError as error:
        return error
    return None
