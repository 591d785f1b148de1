"""A plan as the page shows it before anything is touched: pictures, acts with their reasons, obstacles. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from aliquot.core.model.actions import (
    Action,
    Create,
    CreateVgpu,
    Destroy,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
)
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Blocker, Plan
from aliquot.core.planner.explain import explain
from aliquot.core.rendering import action_text as acts
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import plan_summary as summary
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard.change_requests import FitInstance
from aliquot.dashboard.view_models import ActionLine, ChangePreview, GpuPicture, Obstacle
from aliquot.errors import AliquotError

Address = Callable[[str, str], str]
"""A next step (``aliquot show``) and a node's name, to the command as one would type it for that node."""


class PlannedNode(msgspec.Struct, frozen=True):
    """A node's plan, and the inventory that it was made from."""

    node: str
    plan: Plan
    inventory: Inventory


def preview(
    title: str, planned: Sequence[PlannedNode], address: Address, extra: Sequence[Obstacle] = ()
) -> ChangePreview:
    """Everything of some plans that belong together."""
    obstacles = [*extra, *(o for each in planned for o in _obstacles(each, address))]
    lines = [summary.plan_text(each.plan) for each in planned if not each.plan.blocked]
    if len(planned) > 1:
        lines = [f"{p.node}: {line}" for p, line in zip([p for p in planned if not p.plan.blocked], lines, strict=True)]
    return ChangePreview(
        title=title,
        nodes=tuple(each.node for each in planned),
        pictures=tuple(p for each in planned for p in _pictures(each)),
        actions=() if obstacles else tuple(a for each in planned for a in _action_lines(each)),
        obstacles=tuple(obstacles),
        summary="" if obstacles else "; ".join(lines[:_MOST]) + (" ..." if len(lines) > _MOST else ""),
        notes=tuple(dict.fromkeys(note for each in planned for note in each.plan.notes)),
        warnings=tuple(w for each in planned for w in _warnings(each)),
        kept=planned[0].plan.unchanged if len(planned) == 1 and planned[0].plan.changes else 0,
        secret=tuple(planned),
    )


_MOST = 4


def _action_lines(each: PlannedNode) -> Iterator[ActionLine]:
    for action in each.plan.actions:
        gpu = each.inventory.gpu(action.gpu)
        verb, letter, what = acts.describe_action(action, gpu, each.plan.actions_by_gpu[action.gpu])
        line = ActionLine(each.node, action.gpu, verb, letter, what, action.reason)
        yield msgspec.structs.replace(line, **_values(action))


def _values(action: Action) -> dict[str, str | bool]:
    """What sentences about several acts are made of."""
    match action:
        case Create() | Destroy():
            return {"size": action.profile, "placement": action.placement}
        case CreateVgpu() | DestroyVgpu():
            return {"size": shares.short(action.type)}
        case SetMode():
            return {"feature": "MIG mode", "on": action.mode == "enabled"}
        case SetFunctions():
            return {"feature": "virtual functions", "on": bool(action.count)}
        case SetMixedSize():
            return {"feature": "mixed-size mode", "on": action.on}
        case _:
            return {}


def _warnings(each: PlannedNode) -> Iterator[str]:
    plan = each.plan
    if plan.policy.held == "force" and plan.actions:
        yield "held instances may be destroyed: whatever runs on them ends"
    for pci in plan.resets:
        yield f"GPU {pci} is reset: nothing can run on it meanwhile"
    for pci in plan.reboots:
        yield f"GPU {pci}: the change is complete only after a reboot of {each.node}"


def _pictures(each: PlannedNode) -> Iterator[GpuPicture]:
    """The GPUs that change; of a plan that is blocked those that stand in the way, as they are."""
    pcis = dict.fromkeys(a.gpu for a in each.plan.actions) or dict.fromkeys(b.gpu for b in each.plan.blockers)
    for gpu in each.inventory.gpus:
        if gpu.pci in pcis:
            yield picture(each.node, gpu, each.plan.actions_by_gpu.get(gpu.pci, ()), each.inventory)


def picture(node: str, gpu: Gpu, actions: Sequence[Action], inventory: Inventory) -> GpuPicture:
    """One GPU before and after its lane."""
    modes = [a.mode for a in actions if isinstance(a, SetMode)]
    mig = modes[-1] == "enabled" if modes else gpu.mig.enabled
    table = inventory.vgpu_table(gpu)
    before, after = mig_picture.current_instances(gpu), mig_picture.planned_instances(gpu, actions) if mig else ()
    was, will = shares.current_vgpus(gpu, table), shares.planned_vgpus(gpu, actions, table)
    bar = not mig and (was or will) and shares.drawable(gpu, table, (*was, *will))
    return GpuPicture(
        node=node,
        gpu=gpu.pci,
        title=mig_picture.title(gpu),
        slices=inventory.family(gpu).memory_slices if gpu.family and (mig or gpu.mig.enabled) else 0,
        divided=mig_picture.has_divided_instances(gpu),
        before=before,
        after=after,
        now=_words(gpu, gpu.mig.enabled, before, was, gpu.passthrough),
        planned=_words(gpu, mig, after, will, _passed_through(gpu, actions)) if actions else "",
        region=table.region if bar and table else 0,
        shares_before=was,
        shares_after=will,
    )


def _passed_through(gpu: Gpu, actions: Sequence[Action]) -> bool:
    after = [a.on for a in actions if isinstance(a, SetPassthrough) and not a.function]
    return after[-1] if after else gpu.passthrough


def _words(
    gpu: Gpu,
    mig: bool,
    placed: Sequence[mig_picture.DrawnInstance],
    virtual: Sequence[shares.DrawnVgpu],
    passed_through: bool,
) -> str:
    """``1g.5gb:3  (a held)``, with vGPUs where there are any."""
    if passed_through:
        return "passed through"
    words = [mig_picture.summary(placed)] if mig else ["MIG disabled"] if gpu.mig.capable else []
    return "; ".join([*words, *([shares.summary(virtual)] if virtual else [])]) or "no vGPU"


def _obstacles(each: PlannedNode, address: Address) -> Iterator[Obstacle]:
    for blocker in each.plan.blockers:
        yield obstacle(each.node, blocker, address)


def obstacle(node: str, blocker: Blocker, address: Address) -> Obstacle:
    """A blocker in the page's words."""
    return Obstacle(
        rule=blocker.rule,
        message=blocker.message,
        node=node,
        gpu=blocker.gpu,
        holders=tuple(map(str, blocker.holders)),
        suggestion=blocker.suggestion or "",
        next_step=address(blocker.next_step, node) if blocker.next_step else "",
    )


def with_unreachable(made: ChangePreview, unreachable: Mapping[str, AliquotError], address: Address) -> ChangePreview:
    """A preview that some nodes could not be asked for."""
    found = tuple(
        Obstacle(
            e.code, "; ".join((e.brief, *e.details)), node, next_step=address(e.next_step, node) if e.next_step else ""
        )
        for node, e in unreachable.items()
    )
    return msgspec.structs.replace(
        made, nodes=(*made.nodes, *unreachable), obstacles=(*found, *made.obstacles), actions=(), summary=""
    )


def alternative(request: FitInstance, inventory: Inventory, address: Address) -> Obstacle | None:
    """What would make room for one more of a profile if something were given up: the cheapest plan, which ``Cut``
    takes as its text. None where nothing helps.
    """
    answers = explain(inventory, request.profile, request.gpu).answers
    plan = answers[0].plan if answers else None
    if plan is None or not plan.changes:
        return None
    gpu = inventory.gpu(request.gpu)
    gone = [
        acts.describe_action(a, gpu, plan.actions)[2]
        for a in plan.actions
        if acts.describe_action(a, gpu, plan.actions)[0] == "destroy"
    ]
    text = ",".join(f"{w.name}@{w.start}" for g in plan.desired.gpus for w in g.instances or ())
    return Obstacle(
        rule="WOULD_COST",
        message=f"Moving alone does not help. Giving up {' and '.join(gone)} would make room for {request.profile}.",
        node=request.node,
        gpu=request.gpu,
        suggestion=text,
        next_step=address(answers[0].next_step or "", request.node),
    )
