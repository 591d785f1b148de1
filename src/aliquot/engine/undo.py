"""The way back from a failure: every touched GPU to what it was."""

from __future__ import annotations

import msgspec

from aliquot.engine.lane import Run
from aliquot.engine.lanes import carry_out
from aliquot.engine.ports import Record
from aliquot.engine.telling import undone
from aliquot.engine.world import Outcome
from aliquot.errors import AliquotError
from aliquot.model.actions import Action, CreateVgpu
from aliquot.model.desired import Desired, VgpuWish
from aliquot.model.inventory import Gpu, Inventory
from aliquot.model.plan import Plan, Policy
from aliquot.planner.former import former
from aliquot.planner.planning import plan as make
from aliquot.planner.verify import verify


def undo(run: Run, before: Inventory, after: Inventory, plan: Plan, error: AliquotError) -> Outcome:
    """Lead every touched GPU back to its former placed geometry and its former vGPUs, each on its own: one lost GPU
    must not keep the others from it.
    """
    world = run.world
    back = Run(world, Policy(), run.run, run.report, undoing=True)
    back.note(Record("undo", run.run, text=error.brief), durable=True)
    sentences: list[str] = []
    actions: list[Action] = []
    for pci in plan.lanes:
        way = make(after, _goal(before, after, plan, (pci,)), Policy())
        if way.blockers:
            sentences.append(f"GPU {pci}: not undone, {way.blockers[0].message}")
        actions += way.actions
    failure = carry_out(back, msgspec.structs.replace(plan, actions=tuple(actions))) if actions else None
    now = world.backend.read()
    drift = verify(now, _goal(before, after, plan, tuple(plan.lanes)))
    sentences += [undone(action) for action in actions if not failure]
    if failure is not None:
        sentences.append(f"undoing stopped: {failure.brief}")
    if back.unrecorded or run.unrecorded:
        sentences.append("the journal could not be written while undoing")
    status = "partial" if drift else "undone"
    back.note(Record("end", run.run, text=status), durable=True)
    return Outcome(status, now, tuple(sentences), run.calls + back.calls, drift, error)


def _goal(before: Inventory, after: Inventory, plan: Plan, pcis: tuple[str, ...]) -> Desired:
    """What was, and beside it the vGPUs that somebody else made meanwhile: they are not ours to destroy."""
    goal = former(before, pcis)
    now = {gpu.pci: gpu for gpu in after.gpus}
    wishes = []
    for wish in goal.gpus:
        found = strangers(before.gpu(wish.pci), now[wish.pci], plan) if wish.pci in now else ()
        more = (*(wish.vgpus or ()), *found)
        wishes.append(msgspec.structs.replace(wish, vgpus=more) if found else wish)
    return msgspec.structs.replace(goal, gpus=tuple(wishes))


def strangers(was: Gpu, now: Gpu, plan: Plan) -> tuple[VgpuWish, ...]:
    """The vGPUs of a GPU that were not there before and that the plan does not make."""
    known = {(v.function, v.uuid, v.type_id) for v in was.vgpus}
    known |= {(a.function, a.uuid, a.type_id) for a in plan.lanes.get(now.pci, ()) if isinstance(a, CreateVgpu)}
    return tuple(
        VgpuWish(v.type_id, v.type, v.function, v.uuid)
        for v in now.vgpus
        if (v.function, v.uuid, v.type_id) not in known
    )
