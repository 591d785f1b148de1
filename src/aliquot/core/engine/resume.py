"""After a kill: whether this very plan was cut off, and what is left of it."""

from __future__ import annotations

from aliquot.core.engine.context import ExecutionContext
from aliquot.core.engine.recorded_change import attempted_calls, change_of
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan as make
from aliquot.core.planner.verify import verify
from aliquot.errors import BlockedError, StalePlanError
from aliquot.foundation.callbacks import Report


def resume(
    plan: Plan, now: Inventory, context: ExecutionContext, report: Report
) -> tuple[Plan, Inventory, frozenset[tuple[str, str]]]:
    """The machine is not where the plan was made. If that is because this very plan was carried out, or cut off
    half-way, in this boot: the rest of it, the state before its first action, which is the one to go back to, and what
    was attempted. If it is because of anybody else, refuse.
    """
    entries = context.journal.entries()
    begin = next((r for r in entries if r.kind == "begin" and r.boot == context.journal.boot), None)
    ends = [r.text for r in entries if r.kind == "end"]
    if begin is not None and ends in ([], ["done"]):
        change = change_of(begin)
        if change is not None and change.matches_plan(plan) and change.explains(now):
            rest, before = make(now, plan.desired, plan.policy), change.inventory_before(now)
            if not ends and rest.blockers:
                raise BlockedError(rest.blockers[0].message, next_step=rest.blockers[0].next_step)
            if before is not None and (not ends or not (rest.actions or rest.blockers)):
                if rest.actions:
                    report(f"an earlier run of this plan was cut off; {len(rest.actions)} actions are left")
                return rest, before, attempted_calls(change, entries)
    raise StalePlanError(
        "the machine changed since this plan was made; nothing was touched",
        details=(f"fingerprint then {plan.fingerprint}, now {now.fingerprint}",),
        next_step="run the command for the desired state again: it is planned afresh",
    )


def report_interrupted_run(plan: Plan, now: Inventory, context: ExecutionContext, report: Report) -> None:
    """Say so if an apply was cut off in this boot in the middle of its work, and where that work is not done yet."""
    entries = context.journal.entries()
    begin = next((r for r in entries if r.kind == "begin"), None)
    kinds = {r.kind for r in entries}
    if begin is None or "end" in kinds or "intent" not in kinds:
        return
    if begin.boot != context.journal.boot:
        return
    change = change_of(begin)
    if change is None:
        report("note: another version of Aliquot was cut off; this apply starts from where it left the machine")
        return
    left = {d.gpu for d in verify(now, Desired(change.desired))}
    elsewhere = sorted(left - {w.pci for w in plan.desired.gpus})
    if left:
        more = f"; GPU {', '.join(elsewhere)} still waits for its wish to be asked again" if elsewhere else ""
        report(f"note: an earlier apply was cut off; this one starts from where it left the machine{more}")
