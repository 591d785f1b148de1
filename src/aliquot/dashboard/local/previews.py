"""A plan as the page shows it before anything is touched: pictures, acts with their reasons, obstacles. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from aliquot.core.model.actions import Action, SetMode, SetPassthrough
from aliquot.core.model.inventory import Gpu, Inventory
from aliquot.core.model.plan import Blocker, Plan
from aliquot.core.planner.explain import explain
from aliquot.core.rendering import action_text as acts
from aliquot.core.rendering import mig_picture as pieces
from aliquot.core.rendering import plan_summary as summary
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard.change_requests import MakeRoom
from aliquot.dashboard.view_models import Act, Obstacle, Picture, Preview
from aliquot.errors import AliquotError

Address = Callable[[str, str], str]
"""A next step (``aliquot show``) and a node's name, to the command as one would type it for that node."""


class Planned(msgspec.Struct, frozen=True):
    """A node's plan, and the inventory that it was made from."""

    node: str
    plan: Plan
    inventory: Inventory


def preview(title: str, planned: Sequence[Planned], address: Address, extra: Sequence[Obstacle] = ()) -> Preview:
    """Everything of some plans that belong together."""
    obstacles = [*extra, *(o for each in planned for o in _obstacles(each, address))]
    lines = [summary.figures(each.plan) for each in planned if not each.plan.blocked]
    if len(planned) > 1:
        lines = [f"{p.node}: {line}" for p, line in zip([p for p in planned if not p.plan.blocked], lines, strict=True)]
    return Preview(
        title=title,
        nodes=tuple(each.node for each in planned),
        pictures=tuple(p for each in planned for p in _pictures(each)),
        acts=() if obstacles else tuple(a for each in planned for a in _acts(each)),
        obstacles=tuple(obstacles),
        summary="" if obstacles else "; ".join(lines[:_MOST]) + (" ..." if len(lines) > _MOST else ""),
        notes=tuple(dict.fromkeys(note for each in planned for note in each.plan.notes)),
        warnings=tuple(w for each in planned for w in _warnings(each)),
        secret=tuple(planned),
    )


_MOST = 4


def _acts(each: Planned) -> Iterator[Act]:
    for action in each.plan.actions:
        gpu = each.inventory.gpu(action.gpu)
        verb, letter, what = acts.act(action, gpu, each.plan.lanes[action.gpu])
        yield Act(each.node, action.gpu, verb, letter, what, action.reason)


def _warnings(each: Planned) -> Iterator[str]:
    plan = each.plan
    if plan.policy.held == "force" and plan.actions:
        yield "held instances may be destroyed: whatever runs on them ends"
    for pci in plan.resets:
        yield f"GPU {pci} is reset: nothing can run on it meanwhile"
    for pci in plan.reboots:
        yield f"GPU {pci}: the change is complete only after a reboot of {each.node}"


def _pictures(each: Planned) -> Iterator[Picture]:
    """The GPUs that change; of a plan that is blocked those that stand in the way, as they are."""
    pcis = dict.fromkeys(a.gpu for a in each.plan.actions) or dict.fromkeys(b.gpu for b in each.plan.blockers)
    for gpu in each.inventory.gpus:
        if gpu.pci in pcis:
            yield picture(each.node, gpu, each.plan.lanes.get(gpu.pci, ()), each.inventory)


def picture(node: str, gpu: Gpu, actions: Sequence[Action], inventory: Inventory) -> Picture:
    """One GPU before and after its lane."""
    modes = [a.mode for a in actions if isinstance(a, SetMode)]
    mig = modes[-1] == "enabled" if modes else gpu.mig.enabled
    table = inventory.vgpu_table(gpu)
    before, after = pieces.now(gpu), pieces.planned(gpu, actions) if mig else ()
    was, will = shares.now(gpu, table), shares.planned(gpu, actions, table)
    bar = not mig and (was or will) and shares.drawable(gpu, table, (*was, *will))
    return Picture(
        node=node,
        gpu=gpu.pci,
        title=pieces.title(gpu),
        slices=inventory.family(gpu).memory_slices if gpu.family and (mig or gpu.mig.enabled) else 0,
        divided=pieces.divided(gpu),
        before=before,
        after=after,
        now=_words(gpu, gpu.mig.enabled, before, was, gpu.passthrough),
        planned=_words(gpu, mig, after, will, _handed(gpu, actions)) if actions else "",
        region=table.region if bar and table else 0,
        shares_before=was,
        shares_after=will,
    )


def _handed(gpu: Gpu, actions: Sequence[Action]) -> bool:
    after = [a.on for a in actions if isinstance(a, SetPassthrough) and not a.function]
    return after[-1] if after else gpu.passthrough


def _words(gpu: Gpu, mig: bool, placed: Sequence[pieces.Piece], virtual: Sequence[shares.Share], handed: bool) -> str:
    """``1g.5gb:3  (a held)``, with vGPUs where there are any."""
    if handed:
        return "passed through"
    words = [pieces.summary(placed)] if mig else ["MIG disabled"] if gpu.mig.capable else []
    return "; ".join([*words, *([shares.summary(virtual)] if virtual else [])]) or "no vGPU"


def _obstacles(each: Planned, address: Address) -> Iterator[Obstacle]:
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


def without(made: Preview, away: Mapping[str, AliquotError], address: Address) -> Preview:
    """A preview that some nodes could not be asked for."""
    found = tuple(
        Obstacle(
            e.code, "; ".join((e.brief, *e.details)), node, next_step=address(e.next_step, node) if e.next_step else ""
        )
        for node, e in away.items()
    )
    return msgspec.structs.replace(
        made, nodes=(*made.nodes, *away), obstacles=(*found, *made.obstacles), acts=(), summary=""
    )


def instead(ask: MakeRoom, inventory: Inventory, address: Address) -> Obstacle | None:
    """What would make room for one more of a profile if something were given up: the cheapest plan, which ``Cut``
    takes as its text. None where nothing helps.
    """
    answers = explain(inventory, ask.profile, ask.gpu).answers
    plan = answers[0].plan if answers else None
    if plan is None or not plan.changes:
        return None
    gpu = inventory.gpu(ask.gpu)
    gone = [acts.act(a, gpu, plan.actions)[2] for a in plan.actions if acts.act(a, gpu, plan.actions)[0] == "destroy"]
    text = ",".join(f"{w.name}@{w.start}" for g in plan.desired.gpus for w in g.instances or ())
    return Obstacle(
        rule="WOULD_COST",
        message=f"Moving alone does not help. Giving up {' and '.join(gone)} would make room for {ask.profile}.",
        node=ask.node,
        gpu=ask.gpu,
        suggestion=text,
        next_step=address(answers[0].next_step or "", ask.node),
    )
