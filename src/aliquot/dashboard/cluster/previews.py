"""Previews of change requests in a cluster. They refuse early what agents or webhooks would refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from aliquot.core.planner.plan import plan
from aliquot.dashboard.change_requests import (
    AnyChangeRequest,
    AttachDevices,
    DetachDevices,
    FitInstance,
    PartitionGpu,
    SetLayout,
)
from aliquot.dashboard.cluster import harvester_patches as objects
from aliquot.dashboard.cluster import kubevirt_attach as attaching
from aliquot.dashboard.cluster import user_client as writing
from aliquot.dashboard.cluster.cluster_cache import ClusterCache
from aliquot.dashboard.cluster.desired_state import NodeChange
from aliquot.dashboard.local import desired_state, previews
from aliquot.dashboard.local.preview_requests import title
from aliquot.dashboard.local.previews import PlannedNode
from aliquot.dashboard.view_models import (
    ActionLine,
    ChangePreview,
    GpuPicture,
    ObservedNode,
    Obstacle,
    VirtualizationView,
)
from aliquot.errors import AliquotError
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import NotFoundError
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.config_label import ConfigFailure
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot

_LEAVES = {
    "wait": "the agent waits until the holders have released their instances",
    "drain": "pods on instances to destroy are evicted (PodDisruptionBudgets are respected)",
    "force": "pods on instances to destroy are evicted or deleted, and processes on them are killed",
}


def nodes(request: AnyChangeRequest, changes: Sequence[tuple[str, NodeChange | ConfigFailure]]) -> ChangePreview:
    """Preview changes of nodes, as their agents will plan them."""
    found = [each for _, each in changes if isinstance(each, NodeChange)]
    extra = [_obstacle(node, each) for node, each in changes if isinstance(each, ConfigFailure)]
    planned = [PlannedNode(each.node, each.plan, each.inventory) for each in found]
    if isinstance(request, FitInstance) and found and found[0].plan.blocked and request.policy == "refuse":
        other = previews.alternative(request, found[0].inventory, _as_it_is)
        extra += [other] if other is not None else []
    made = previews.preview(title(request), planned, _as_it_is, extra)
    actions = made.actions
    if not made.obstacles:
        actions = (*actions, *(action for each in found for action in _label(each)))
    return msgspec.structs.replace(
        made,
        nodes=tuple(node for node, _ in changes),
        actions=actions,
        notes=(*made.notes, *(note for each in found for note in _notes(request, each))),
        warnings=tuple(dict.fromkeys((*made.warnings, *(w for each in found for w in _warnings(request, each))))),
        secret=tuple(found),
    )


def _label(each: NodeChange) -> Sequence[ActionLine]:
    """Return an action for the new label. It changes the node even if no GPU changes."""
    if each.label == each.previous_label:
        return ()
    reason = f"previously {each.previous_label}" if each.previous_label else "previously none"
    return (ActionLine(each.node, "", "set", "", f"the named config {each.label}", reason),)


def _notes(request: AnyChangeRequest, each: NodeChange) -> Sequence[str]:
    if isinstance(request, PartitionGpu | FitInstance) and each.text:
        return (f"{each.node} gets its own config {each.label}: this GPU as shown, its other GPUs unchanged",)
    return ()


def _warnings(request: AnyChangeRequest, each: NodeChange) -> Sequence[str]:
    if each.plan.policy.held != "force" or not each.plan.actions:
        return ()
    how = each.holders or request.policy
    lines = (_LEAVES.get(how, _LEAVES["drain"]),)
    if not each.holders:
        return lines
    note = f"{names.HOLDERS_ANNOTATION}={how}"
    back = f"kubectl annotate node {each.node} {names.HOLDERS_ANNOTATION}-"
    return (
        *lines,
        f"{each.node} has {note} during the change; to remove it if the dashboard stops before the end: {back}",
    )


def _obstacle(node: str, error: ConfigFailure) -> Obstacle:
    message = "; ".join((error.message, *error.details[:3]))
    return Obstacle(error.reason, message, node, next_step=error.next_step)


def _as_it_is(step: str, node: str) -> str:
    """Return the step unchanged. The planner's commands are for the node itself."""
    return step


def _judged(judged: objects.JudgedPatches, name: str, pictures: tuple[GpuPicture, ...]) -> ChangePreview:
    """Convert checked patches to a preview."""
    return ChangePreview(
        title=name,
        nodes=judged.nodes,
        pictures=pictures,
        actions=judged.actions,
        obstacles=judged.obstacles,
        summary=_count(len(judged.writes)) if judged.actions else "",
        warnings=judged.warnings,
        secret=judged.writes,
    )


def object_preview(
    request: objects.ObjectChangeRequest, snapshot: AdmissionSnapshot, find_node: Callable[[str], ObservedNode | None]
) -> ChangePreview:
    """Preview changes of Harvester's objects."""
    return _judged(
        objects.judge(request, snapshot),
        title(request),
        _pictures(request, find_node) if isinstance(request, SetLayout) else (),
    )


def _count(writes: int) -> str:
    return f"{writes} {'object' if writes == 1 else 'objects'} to change; the node's agent applies the change"


def _pictures(request: SetLayout, find_node: Callable[[str], ObservedNode | None]) -> tuple[GpuPicture, ...]:
    """Draw the planner's layout if the GPU's agent has reported its inventory."""
    found = find_node(request.node)
    if found is None or found.inventory is None or not request.enabled:
        return ()
    try:
        made = plan(found.inventory, desired_state.layout(request, found.inventory))
        gpu = found.inventory.gpu(request.gpu)
    except (AliquotError, KeyError):
        return ()
    return (previews.picture(request.node, gpu, made.actions_by_gpu.get(gpu.pci, ()), found.inventory),)


async def vm_preview(
    request: AttachDevices | DetachDevices, api: Api, cache: ClusterCache, rows: VirtualizationView
) -> ChangePreview:
    """Preview a change of a VM's devices. Raises ApiError."""
    row = next((m for m in rows.vms if (m.namespace, m.name) == (request.namespace, request.vm)), None)
    try:
        raw = await writing.raw(api, VirtualMachine.TYPE, request.vm, request.namespace)
    except NotFoundError as error:
        gone = Obstacle("NO_MACHINE", error.brief, request.node, next_step=f"kubectl get vm -n {request.namespace}")
        return ChangePreview(title(request), (request.node,), obstacles=(gone,))
    found = attaching.attach(request, raw, row, cache.admission_state.cluster())
    return ChangePreview(
        title=title(request),
        nodes=(request.node,) if request.node else (),
        actions=found.actions,
        obstacles=found.obstacles,
        summary=_lists(found) if found.actions else "",
        warnings=found.warnings,
        secret=found,
    )


def _lists(found: attaching.DeviceLists) -> str:
    count = len(found.gpus) + len(found.host_devices)
    return f"{found.name} will have {count} {'device' if count == 1 else 'devices'}"
