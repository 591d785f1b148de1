"""After a kill: whether this very plan was cut off, and what is left of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from aliquot.core.engine.context import Report, World
from aliquot.core.model.actions import Action, Create, CreateVgpu, SetFunctions, SetPassthrough
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan as make
from aliquot.core.planner.verify import verify
from aliquot.errors import BlockedError, MovedError

T = TypeVar("T")


def resume(plan: Plan, now: Inventory, world: World, report: Report) -> tuple[Plan, Inventory]:
    """The machine is not where the plan was made. If that is because this very plan was carried out, or cut off
    half-way, in this boot: the rest of it, and the state before its first action, which is the one to go back to. If
    it is because of anybody else, refuse.
    """
    records = world.journal.records()
    begin = next((r for r in records if r.kind == "begin" and r.boot == world.journal.boot), None)
    ends = [r.text for r in records if r.kind == "end"]
    if begin is not None and ends in ([], ["done"]):
        was, former_state = _decoded(begin.plan, Plan), _decoded(begin.before, Inventory)
        same = was is not None and (was.fingerprint, was.desired) == (plan.fingerprint, plan.desired)
        if same and former_state is not None and _on_the_way(plan, former_state, now):
            rest = make(now, plan.desired, plan.policy)
            if not ends and rest.blockers:
                raise BlockedError(rest.blockers[0].message, next_step=rest.blockers[0].next_step)
            if not ends or not (rest.actions or rest.blockers):
                if rest.actions:
                    report(f"an earlier run of this plan was cut off; {len(rest.actions)} actions are left")
                return rest, former_state
    raise MovedError(
        "the machine changed since this plan was made; nothing was touched",
        details=(f"fingerprint then {plan.fingerprint}, now {now.fingerprint}",),
        next_step="ask for the same wish again: it is planned afresh",
    )


def _decoded(raw: msgspec.Raw | None, shape: type[T]) -> T | None:
    """What the journal holds; None where it is nothing, or where another version of Aliquot wrote it otherwise."""
    try:
        return None if raw is None else msgspec.json.decode(raw, type=shape)
    except (ValueError, RecursionError):
        return None


def _on_the_way(plan: Plan, before: Inventory, now: Inventory) -> bool:
    """True if everything that exists now existed before or is what the plan makes, and no other GPU moved."""
    for gpu in now.gpus:
        was = next((g for g in before.gpus if g.pci == gpu.pci), None)
        if was is None or not _could_be(gpu, was, plan.lanes.get(gpu.pci, ())):
            return False
    return True


def _could_be(gpu: Gpu, was: Gpu, lane: Sequence[Action]) -> bool:
    """Whether a GPU may have come from its former state to this by some of these actions, and by nothing else."""
    made = {(a.profile_id, a.placement) for a in lane if isinstance(a, Create)}
    new = {(a.function, a.type_id, a.uuid) for a in lane if isinstance(a, CreateVgpu)}
    if not lane:
        return (_instances(gpu), _vgpus(gpu), _functions(gpu), gpu.passthrough) == (
            _instances(was),
            _vgpus(was),
            _functions(was),
            was.passthrough,
        )
    counts = {a.count for a in lane if isinstance(a, SetFunctions)} | {_functions(was)}
    handed = {a.on for a in lane if isinstance(a, SetPassthrough) and not a.function} | {was.passthrough}
    return (
        gpu.passthrough in handed
        and _instances(gpu) <= _instances(was) | made
        and _vgpus(gpu) <= _vgpus(was) | new
        and _functions(gpu) in counts
    )


def _instances(gpu: Gpu) -> set[tuple[int, str]]:
    return {(i.profile_id, i.placement) for i in gpu.instances}


def _vgpus(gpu: Gpu) -> set[tuple[str, int, str]]:
    return {(v.function, v.type_id, v.uuid) for v in gpu.vgpus}


def _functions(gpu: Gpu) -> int:
    return len(gpu.virtual.functions) if gpu.virtual else 0


def tell_of_a_cut_off_run(plan: Plan, now: Inventory, world: World, report: Report) -> None:
    """Say so if an apply was cut off in this boot in the middle of its work, and where that work is not done yet."""
    records = world.journal.records()
    begin = next((r for r in records if r.kind == "begin"), None)
    kinds = {r.kind for r in records}
    if begin is None or begin.plan is None or "end" in kinds or "intent" not in kinds:
        return
    if begin.boot != world.journal.boot:
        return
    was = _decoded(begin.plan, Plan)
    if was is None:
        report("note: another version of Aliquot was cut off; this apply starts from where it left the machine")
        return
    left = {d.gpu for d in verify(now, was.desired)}
    elsewhere = sorted(left - {w.pci for w in plan.desired.gpus})
    if left:
        more = f"; GPU {', '.join(elsewhere)} still waits for its wish to be asked again" if elsewhere else ""
        report(f"note: an earlier apply was cut off; this one starts from where it left the machine{more}")
