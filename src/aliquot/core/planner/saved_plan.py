"""The comparison of a plan from a file with the plan that the planner makes now for its desired state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

import msgspec

from aliquot.core.model.actions import Action, Destroy, DestroyVgpu
from aliquot.core.model.encoding import encode, to_builtins
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Plan
from aliquot.core.planner.plan import plan as make
from aliquot.errors import PlanMismatchError

replace = msgspec.structs.replace
NEXT = "aliquot plan -f FILE --out plan.json"
_LISTED = 6
_COUNTS = {"unchanged", "destroyed", "created", "resets", "reboots", "changes"}
_UNPLANNABLE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)
"""The errors of the planner for a desired state that has the right types but was not resolved on this node."""


def confirm(saved: Plan, now: Inventory) -> None:
    """Raise PlanMismatchError unless the planner makes exactly this plan for ``now``, which has its fingerprint.

    Holders are not part of the fingerprint. They may have changed since the plan was saved, and are read again before
    each action that destroys. So the plan may have been made in any of the states of ``_with_holders``.
    """
    try:
        misnamed = list(_misnamed(saved, now))
        made = [make(each, saved.desired, saved.policy) for each in _with_holders(saved, now)]
    except _UNPLANNABLE as error:
        raise PlanMismatchError(
            "this file holds a desired state that cannot be planned on this node; nothing was touched",
            details=(f"{type(error).__name__}: {error}",),
            next_step=NEXT,
        ) from error
    if misnamed:
        raise PlanMismatchError(
            "this file names profiles that do not match their ids on this node; nothing was touched",
            details=tuple(_truncated(misnamed)),
            next_step=NEXT,
        )
    if all(_compared(each) != _compared(saved) for each in made):
        raise PlanMismatchError(
            "this file does not hold the plan that Aliquot makes for its desired state; nothing was touched",
            details=tuple(_differences(saved, next((each for each in made if not each.blocked), made[0]))),
            next_step=NEXT,
        )


def _misnamed(saved: Plan, now: Inventory) -> Iterator[str]:
    """Return a sentence for each name in the desired state that does not match its id: ids count, but people read
    names.
    """
    for want in saved.desired.gpus:
        gpu = now.gpu(want.pci)
        profiles = now.family(gpu).by_id if want.instances else {}
        for each in want.instances or ():
            profile = profiles.get(each.profile_id)
            if profile is not None and profile.name != each.name:
                yield f"GPU {want.pci}: id {each.profile_id} is {profile.name}, not {each.name}"
        types = now.vgpu_table(gpu) if want.vgpus else None
        for vgpu in want.vgpus or ():
            kind = types.by_id.get(vgpu.type_id) if types else None
            if kind is not None and kind.name != vgpu.type:
                yield f"GPU {want.pci}: id {vgpu.type_id} is {kind.name}, not {vgpu.type}"


def _with_holders(saved: Plan, now: Inventory) -> Iterator[Inventory]:
    """Return the node with its present holders, and with a holder on exactly the instances that the plan keeps.

    Whatever the holders were when the plan was made, the planner makes the same plan for the second inventory. Under
    ``force`` only the present holders count: there only the planner's choice prevents that a holder is ended.
    """
    yield now
    if saved.policy.held != "force":
        destroyed = {(a.gpu, a.instance) for a in saved.actions if isinstance(a, Destroy)}
        remaining = {(gpu.pci, i.id) for gpu in now.gpus for i in gpu.instances} - destroyed
        yield replace(now, gpus=tuple(_held(gpu, remaining) for gpu in now.gpus))


def _held(gpu: Gpu, held: set[tuple[str, int]]) -> Gpu:
    """Return the GPU with only these instances held, and without a client on the whole GPU or on a vGPU."""
    instances = tuple(
        replace(
            i,
            held=(gpu.pci, i.id) in held,
            holders=(),
            compute_instances=tuple(replace(c, holders=()) for c in i.compute_instances),
        )
        for i in gpu.instances
    )
    virtual = gpu.virtual
    if virtual is not None:
        virtual = replace(virtual, functions=tuple(replace(f, holders=()) for f in virtual.functions))
    vgpus = tuple(replace(v, holders=()) for v in gpu.vgpus)
    return replace(gpu, instances=instances, holders=(), vgpus=vgpus, virtual=virtual)


def _compared(plan: Plan) -> tuple[object, ...]:
    """Return the parts of a plan that decide what happens and what is reported. Sentences may differ."""
    actions = _in_order(plan.actions)
    counts = plan.changes, plan.unchanged, plan.destroyed, plan.created, plan.resets, plan.reboots
    return plan.fingerprint, plan.desired, plan.policy, bool(plan.blockers), actions, counts


def _in_order(actions: Sequence[Action]) -> list[dict[str, object]]:
    """Return the actions without their reasons, successive destructions sorted.

    Among these the planner orders held instances first, which depends only on the holders.
    """
    found: list[dict[str, object]] = []
    for (_, kind), run in groupby(actions, key=lambda action: (action.gpu, type(action))):
        plain = [_plain(action) for action in run]
        found += sorted(plain, key=repr) if kind in (Destroy, DestroyVgpu) else plain
    return found


def _plain(action: Action) -> dict[str, object]:
    plain: dict[str, object] = to_builtins(action)
    del plain["reason"]
    return plain


def _differences(saved: Plan, made: Plan) -> Iterator[str]:
    """Return the actions that only one of two plans has, or another difference."""
    if made.blocked:
        yield f"the planner refuses it: {made.blockers[0].message}"
        return
    have, want = _in_order(saved.actions), _in_order(made.actions)
    lines = [f"only in the file: {_text(a)}" for a in have if a not in want or have.count(a) > want.count(a)]
    lines += [f"missing in the file: {_text(a)}" for a in want if a not in have]
    yield from _truncated(list(dict.fromkeys(lines)))
    if not lines and have != want:
        yield "the file has the same actions in another order"
    for field in msgspec.structs.fields(Plan):
        if field.name in _COUNTS and not lines and (has := getattr(saved, field.name)) != getattr(made, field.name):
            yield f"the file says {field.encode_name} {has}, the planner {getattr(made, field.name)}"


def _truncated(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_LISTED]
    if len(lines) > _LISTED:
        yield f"and {len(lines) - _LISTED} more"


def _text(plain: dict[str, object]) -> str:
    """Format an action as in the file."""
    return encode(plain).decode()
