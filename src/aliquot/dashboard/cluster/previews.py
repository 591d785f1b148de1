"""Asks as previews. What is refused here would be refused by the agents or webhooks too; here it is said before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from aliquot.core.planner.plan import plan
from aliquot.dashboard.change_requests import AnyAsk, Attach, Cut, Detach, MakeRoom, SetLayout
from aliquot.dashboard.cluster import harvester_patches as objects
from aliquot.dashboard.cluster import kubevirt_attach as attaching
from aliquot.dashboard.cluster import user_client as writing
from aliquot.dashboard.cluster.cluster_cache import View
from aliquot.dashboard.cluster.desired_state import Way
from aliquot.dashboard.local import desired_state as wishes
from aliquot.dashboard.local import previews
from aliquot.dashboard.local.preview_requests import title
from aliquot.dashboard.local.previews import Planned
from aliquot.dashboard.view_models import Act, NodeLook, Obstacle, Picture, Preview, Virtual
from aliquot.errors import AliquotError
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import NotFoundError
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import Trouble
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import World

_LEAVES = {
    "wait": "it waits until what holds instances has ended",
    "drain": "pods on instances that must go are evicted, budgets respected",
    "force": "pods on instances that must go are evicted or deleted, processes on them end",
}


def nodes(ask: AnyAsk, ways: Sequence[tuple[str, Way | Trouble]]) -> Preview:
    """What becomes of nodes, as their agents will plan it."""
    found = [each for _, each in ways if isinstance(each, Way)]
    extra = [_obstacle(node, each) for node, each in ways if isinstance(each, Trouble)]
    planned = [Planned(each.node, each.plan, each.inventory) for each in found]
    if isinstance(ask, MakeRoom) and found and found[0].plan.blocked and ask.policy == "refuse":
        other = previews.instead(ask, found[0].inventory, _as_it_is)
        extra += [other] if other is not None else []
    made = previews.preview(title(ask), planned, _as_it_is, extra)
    acts = made.acts
    if not made.obstacles:
        acts = (*acts, *(act for each in found for act in _label(each)))
    return msgspec.structs.replace(
        made,
        nodes=tuple(node for node, _ in ways),
        acts=acts,
        notes=(*made.notes, *(note for each in found for note in _notes(ask, each))),
        warnings=tuple(dict.fromkeys((*made.warnings, *(w for each in found for w in _warnings(ask, each))))),
        secret=tuple(found),
    )


def _label(each: Way) -> Sequence[Act]:
    """A wish that changes nothing on the GPUs is a change of the node all the same."""
    if each.label == each.was:
        return ()
    was = f"it was {each.was}" if each.was else "it had none"
    return (Act(each.node, "", "set", "", f"the named config {each.label}", was),)


def _notes(ask: AnyAsk, each: Way) -> Sequence[str]:
    if isinstance(ask, Cut | MakeRoom) and each.text:
        return (
            f"the wish of {each.node} becomes the config {each.label}, made for this node alone: this GPU as shown, "
            "its other GPUs as they are",
        )
    return ()


def _warnings(ask: AnyAsk, each: Way) -> Sequence[str]:
    if each.plan.policy.held != "force" or not each.plan.actions:
        return ()
    how = each.holders or ask.policy
    told = (_LEAVES.get(how, _LEAVES["drain"]),)
    if not each.holders:
        return told
    note = f"{names.HOLDERS_ANNOTATION}={how}"
    back = f"kubectl annotate node {each.node} {names.HOLDERS_ANNOTATION}-"
    return (*told, f"until the change has ended {each.node} has {note}; if this page ends before, that stays: {back}")


def _obstacle(node: str, trouble: Trouble) -> Obstacle:
    message = "; ".join((trouble.message, *trouble.details[:3]))
    return Obstacle(trouble.reason, message, node, next_step=trouble.next_step)


def _as_it_is(step: str, node: str) -> str:
    """The planner's commands are for the node itself; there is nothing better to say of them here."""
    return step


def _judged(judged: objects.Judged, name: str, pictures: tuple[Picture, ...]) -> Preview:
    """A judged ask as a preview."""
    return Preview(
        title=name,
        nodes=judged.nodes,
        pictures=pictures,
        acts=judged.acts,
        obstacles=judged.obstacles,
        summary=_count(len(judged.writes)) if judged.acts else "",
        warnings=judged.warnings,
        secret=judged.writes,
    )


def objects_asked(ask: objects.ObjectAsk, world: World, look: Callable[[str], NodeLook | None]) -> Preview:
    """What becomes of Harvester's objects."""
    return _judged(objects.judge(ask, world), title(ask), _pictures(ask, look) if isinstance(ask, SetLayout) else ())


def _count(writes: int) -> str:
    return f"{writes} {'object' if writes == 1 else 'objects'} to change; the node's agent does the rest"


def _pictures(ask: SetLayout, look: Callable[[str], NodeLook | None]) -> tuple[Picture, ...]:
    """How the planner would lay it out, where the GPU's own agent has told what is on it."""
    found = look(ask.node)
    if found is None or found.inventory is None or not ask.enabled:
        return ()
    try:
        made = plan(found.inventory, wishes.layout(ask, found.inventory))
        gpu = found.inventory.gpu(ask.gpu)
    except (AliquotError, KeyError):
        return ()
    return (previews.picture(ask.node, gpu, made.lanes.get(gpu.pci, ()), found.inventory),)


async def machine(ask: Attach | Detach, api: Api, view: View, rows: Virtual) -> Preview:
    """What becomes of a machine's devices. Raises ApiError."""
    row = next((m for m in rows.machines if (m.namespace, m.name) == (ask.namespace, ask.machine)), None)
    try:
        raw = await writing.raw(api, VirtualMachine.TYPE, ask.machine, ask.namespace)
    except NotFoundError as error:
        gone = Obstacle("NO_MACHINE", error.brief, ask.node, next_step=f"kubectl get vm -n {ask.namespace}")
        return Preview(title(ask), (ask.node,), obstacles=(gone,))
    found = attaching.attach(ask, raw, row, view.known.cluster())
    return Preview(
        title=title(ask),
        nodes=(ask.node,) if ask.node else (),
        acts=found.acts,
        obstacles=found.obstacles,
        summary=_lists(found) if found.acts else "",
        warnings=found.warnings,
        secret=found,
    )


def _lists(found: attaching.Lists) -> str:
    count = len(found.gpus) + len(found.host_devices)
    return f"{found.name} will have {count} {'device' if count == 1 else 'devices'}"
