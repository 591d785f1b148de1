"""Plans as previews for the page: pictures, actions with their reasons, obstacles. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from aliquot.core.model.actions import (
    Action,
    Create,
    CreateVgpu,
    Destroy,
    DestroyCompute,
    DestroyVgpu,
    SetFunctions,
    SetMixedSize,
    SetMode,
    SetPassthrough,
    SetScheduler,
)
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.placement import Placement
from aliquot.core.model.plan import Blocker, Plan
from aliquot.core.model.structured_text import Part, StructuredText
from aliquot.core.planner.explain import explain
from aliquot.core.rendering import action_text as action_texts
from aliquot.core.rendering import mig_picture
from aliquot.core.rendering import plan_summary as summary
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard.change_requests import FitInstance
from aliquot.dashboard.view_models import ActionLine, ChangePreview, GpuPicture, Obstacle
from aliquot.errors import AliquotError

Address = Callable[[str, str], str]
"""Converts a next step (``aliquot show``) and a node name to the full command for that node."""


class PlannedNode(msgspec.Struct, frozen=True):
    """A node's plan, and the inventory that it is based on."""

    node: str
    plan: Plan
    inventory: Inventory


def preview(
    title: str, planned: Sequence[PlannedNode], address: Address, extra: Sequence[Obstacle] = ()
) -> ChangePreview:
    """Build one preview from the plans of several nodes."""
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
        verb, letter, what = action_texts.describe_action(action, gpu, each.plan.actions_by_gpu[action.gpu])
        line = ActionLine(each.node, action.gpu, verb, letter, what, action.reason)
        yield msgspec.structs.replace(line, **_values(action))


def _values(action: Action) -> dict[str, str | bool]:
    """Return the fields of an action line that summary sentences use."""
    match action:
        case Create() | Destroy():
            return {"size": action.profile, "placement": action.placement, "inside": action_texts.inside(action)}
        case CreateVgpu() | DestroyVgpu():
            return {"size": shares.short(action.type)}
        case SetMode():
            return {"feature": "MIG mode", "on": action.mode == "enabled"}
        case SetFunctions():
            return {"feature": "virtual functions", "on": bool(action.count)}
        case SetScheduler():
            return {"feature": f"scheduler {action.scheduler}", "on": True}
        case SetMixedSize():
            return {"feature": "mixed-size mode", "on": action.on}
        case _:
            return {}


def _warnings(each: PlannedNode) -> Iterator[str]:
    plan = each.plan
    if plan.policy.held == "force" and plan.actions:
        yield "held instances may be destroyed: the processes on them fail"
    for pci in plan.resets:
        yield f"GPU {pci} is reset: nothing can run on it during the reset"
    for pci in plan.reboots:
        yield f"GPU {pci}: the change is complete only after a reboot of {each.node}"


def _pictures(each: PlannedNode) -> Iterator[GpuPicture]:
    """Yield pictures of the GPUs that change, or for a blocked plan of the current GPUs that block it."""
    pcis = dict.fromkeys(a.gpu for a in each.plan.actions) or dict.fromkeys(b.gpu for b in each.plan.blockers)
    for gpu in each.inventory.gpus:
        if gpu.pci in pcis:
            yield picture(each.node, gpu, each.plan.actions_by_gpu.get(gpu.pci, ()), each.inventory)


def picture(node: str, gpu: Gpu, actions: Sequence[Action], inventory: Inventory) -> GpuPicture:
    """Build the picture of one GPU before and after its actions."""
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
        mig_disabled=gpu.mig.capable and not gpu.mig.enabled and not gpu.passthrough,
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
    """Format ``1g.5gb:3  (a held)``, with the vGPUs if there are any."""
    if passed_through:
        return "passed through"
    words = [mig_picture.summary(placed)] if mig else ["MIG disabled"] if gpu.mig.capable else []
    return "; ".join([*words, *([shares.summary(virtual)] if virtual else [])]) or "no vGPU"


def _obstacles(each: PlannedNode, address: Address) -> Iterator[Obstacle]:
    for blocker in each.plan.blockers:
        yield obstacle(each.node, blocker, address)


def obstacle(node: str, blocker: Blocker, address: Address) -> Obstacle:
    """Convert a blocker for the page."""
    return Obstacle(
        rule=blocker.rule,
        message=blocker.text,
        node=node,
        gpu=blocker.gpu,
        holders=tuple(map(str, blocker.holders)),
        suggestion=blocker.suggestion or "",
        next_step=address(blocker.next_step, node) if blocker.next_step else "",
    )


def with_unreachable(made: ChangePreview, unreachable: Mapping[str, AliquotError], address: Address) -> ChangePreview:
    """Add obstacles for nodes that could not be read."""
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
    """Find the cheapest plan that makes room for one more of a profile by destroying idle instances.

    The obstacle's suggestion is its geometry, for ``PartitionGpu``. Return None if nothing helps.
    """
    answers = explain(inventory, request.profile, request.gpu).answers
    plan = answers[0].plan if answers else None
    if plan is None or not plan.changes:
        return None
    gpu = inventory.gpu(request.gpu)
    gone = StructuredText.joined(" and ", (_named(a, gpu, plan) for a in plan.actions if isinstance(a, _DESTRUCTIONS)))
    text = ",".join(f"{w.name}@{w.start}" for g in plan.desired.gpus for w in g.instances or ())
    return Obstacle(
        rule="WOULD_COST",
        message=StructuredText(
            "Moving instances does not help. Destroy ", gone, f" to make room for {request.profile}."
        ),
        node=request.node,
        gpu=request.gpu,
        suggestion=text,
        next_step=address(answers[0].next_step or "", request.node),
    )


_DESTRUCTIONS = (Destroy, DestroyCompute, DestroyVgpu)


def _named(action: Action, gpu: Gpu, plan: Plan) -> Part:
    if isinstance(action, Destroy):
        return action.profile, Placement.parse(action.placement)
    return action_texts.describe_action(action, gpu, plan.actions)[2]
