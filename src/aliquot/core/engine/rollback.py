"""The way back from a failure: every touched GPU to what it was."""

from __future__ import annotations

import msgspec

from aliquot.core.engine.action_text import creation_step, undone
from aliquot.core.engine.context import ApplyOutcome, ApplyStatus
from aliquot.core.engine.executor import execute
from aliquot.core.engine.ports import JournalEntry
from aliquot.core.engine.run import Run
from aliquot.core.model.actions import Action, Create, CreateCompute, CreateVgpu
from aliquot.core.model.desired import Desired
from aliquot.core.model.inventory import Inventory
from aliquot.core.model.plan import Plan, Policy
from aliquot.core.planner.plan import plan as make
from aliquot.core.planner.restore_point import foreign_instances, make_restore_point, spare_foreign
from aliquot.core.planner.verify import verify
from aliquot.errors import AliquotError, ApplyInterruptedError


def undo(run: Run, before: Inventory, plan: Plan, error: AliquotError) -> ApplyOutcome:
    """Lead every touched GPU back to its former placed geometry and its former vGPUs, each on its own: one lost GPU
    must not keep the others from it.
    """
    context = run.context
    back = Run(context, Policy(), run.run_id, run.report, undoing=True)
    back.note(JournalEntry("undo", run.run_id, text=error.brief), durable=True)
    after = context.backend.read()
    made = _made(run, plan)
    sentences = _spared(before, after, plan, made)
    actions: list[Action] = []
    for pci in plan.actions_by_gpu:
        undo_plan = make(after, _goal(before, after, made, (pci,)), Policy())
        if undo_plan.blockers:
            sentences.append(f"GPU {pci}: not undone, {undo_plan.blockers[0].message}")
        actions += undo_plan.actions
    failure = execute(back, msgspec.structs.replace(plan, actions=tuple(actions))) if actions else None
    now = context.backend.read()
    drift = verify(now, _goal(before, after, made, tuple(plan.actions_by_gpu)))
    sentences += [undone(action) for action in actions if not failure]
    if failure is not None:
        sentences.append(f"undoing stopped: {failure.brief}")
    if back.unrecorded or run.unrecorded:
        sentences.append("the journal could not be written while undoing")
    status: ApplyStatus = "partial" if drift else "stopped" if isinstance(error, ApplyInterruptedError) else "undone"
    back.note(JournalEntry("end", run.run_id, text=status), durable=True)
    return ApplyOutcome(status, now, tuple(sentences), run.calls + back.calls, drift, error)


def record_failed_rollback(run: Run, failure: AliquotError) -> None:
    """Record that the way back failed: where it ended is not known."""
    back = Run(run.context, Policy(), run.run_id, run.report, undoing=True)
    back.note(JournalEntry("failed", run.run_id, text=failure.brief), durable=False)
    back.note(JournalEntry("end", run.run_id, text="partial"), durable=True)


def _made(run: Run, plan: Plan) -> list[Action]:
    """What this run may have created: another process may have taken the place of what it did not get to, or of what
    the driver refused.
    """
    creations = [a for a in plan.actions if isinstance(a, Create | CreateCompute | CreateVgpu)]
    return [a for a in creations if (a.gpu, creation_step(a)) in run.attempted]


def _goal(before: Inventory, after: Inventory, made: list[Action], pcis: tuple[str, ...]) -> Desired:
    """What was, and beside it what another process made meanwhile."""
    return spare_foreign(make_restore_point(before, pcis), before, after, made)


def _spared(before: Inventory, after: Inventory, plan: Plan, made: list[Action]) -> list[str]:
    """What another process created on the GPUs of the plan, in sentences."""
    touched = [g for g in after.gpus if g.pci in plan.actions_by_gpu]
    return [
        f"GPU {gpu.pci}: {i.profile} at {i.placement} stays: another process created it meanwhile"
        for gpu in touched
        for i in foreign_instances(before.gpu(gpu.pci), gpu, made)
    ]
