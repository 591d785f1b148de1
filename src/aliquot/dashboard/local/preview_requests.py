"""Previews of change requests, from fresh observations of the affected nodes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from aliquot.core.model.desired import Desired, ResolutionFailure
from aliquot.core.model.plan import HELD_POLICIES, Policy
from aliquot.core.planner.plan import plan
from aliquot.core.rendering import vgpu_picture as shares
from aliquot.dashboard.change_requests import (
    AnyChangeRequest,
    AttachDevices,
    DetachDevices,
    FitInstance,
    PartitionGpu,
    Repair,
    SetLayout,
    SetVgpus,
    SwitchFunctions,
    UseConfig,
)
from aliquot.dashboard.local import desired_state, previews
from aliquot.dashboard.local.node_access import NodeObservation
from aliquot.dashboard.local.previews import Address, PlannedNode
from aliquot.dashboard.view_models import ChangePreview
from aliquot.errors import AliquotError, NoSuchGpuError, UsageError

if TYPE_CHECKING:
    from aliquot.core.config.file import ConfigFile

LONGEST_S = 3600.0


def nodes_of(request: AnyChangeRequest) -> tuple[str, ...]:
    """Return the nodes of a request without duplicates. Raises UsageError if it names none."""
    match request:
        case SwitchFunctions():
            found = tuple(dict.fromkeys(node for node, _ in map(split_place, request.gpus)))
        case SetVgpus():
            found = tuple(dict.fromkeys(node for node, _ in map(split_place, request.places)))
        case UseConfig():
            found = tuple(dict.fromkeys(request.nodes))
        case _:
            found = (request.node,)
    if not found:
        raise UsageError("nothing is selected: select at least one")
    return found


def split_place(word: str) -> tuple[str, str]:
    """Split ``node/name``. Raises UsageError."""
    node, slash, name = word.partition("/")
    if not (slash and node and name):
        raise UsageError(f"{word!r} is not NODE/NAME")
    return node, name


def policy(request: AnyChangeRequest) -> Policy:
    """Return the policy for held instances. Raises UsageError."""
    if request.policy not in HELD_POLICIES:
        raise UsageError(f"invalid policy {request.policy!r} for held instances: use one of {', '.join(HELD_POLICIES)}")
    if not 0 <= request.timeout_s <= LONGEST_S:
        raise UsageError(f"invalid time to wait: use 0 to {LONGEST_S:.0f} seconds")
    return Policy(held=request.policy, timeout_s=request.timeout_s)


def preview(
    request: AnyChangeRequest, observations: Mapping[str, NodeObservation], file: ConfigFile | None, address: Address
) -> ChangePreview:
    """Preview a request for the observed nodes. Raises AliquotError if the request is invalid.

    The obstacles say what cannot be applied here or now, for example if a GPU no longer exists.
    """
    rules = policy(request)
    planned = []
    for node in nodes_of(request):
        if node not in observations:
            continue
        observation = observations[node]
        try:
            desired = desired_for(request, node, observation, file)
        except NoSuchGpuError as error:
            failure = ResolutionFailure("NO_SUCH_GPU", _sentence(error), step=error.next_step)
            desired = Desired((), failures=(failure,))
        planned.append(PlannedNode(node, plan(observation.inventory, desired, rules), observation.inventory))
    extra = []
    if isinstance(request, FitInstance) and planned and planned[0].plan.blocked and request.policy == "refuse":
        other = previews.alternative(request, planned[0].inventory, address)
        extra = [other] if other is not None else []
    made = previews.preview(title(request), planned, address)
    return msgspec.structs.replace(made, obstacles=(*made.obstacles, *extra))


def _sentence(error: AliquotError) -> str:
    return "; ".join((error.brief, *error.details))


def desired_for(request: AnyChangeRequest, node: str, observation: NodeObservation, file: ConfigFile | None) -> Desired:
    """Return the desired state of a request for one node."""
    inventory = observation.inventory
    match request:
        case PartitionGpu():
            return desired_state.partition(request, inventory)
        case FitInstance():
            return desired_state.fit_instance(request, inventory)
        case SetLayout():
            return desired_state.layout(request, inventory)
        case SwitchFunctions():
            return desired_state.functions(_names_on(request.gpus, node), request.on, inventory)
        case SetVgpus():
            return desired_state.vgpus(_names_on(request.places, node), request.type, inventory)
        case UseConfig():
            return desired_state.config(file, request.config, inventory)
        case Repair():
            return desired_state.repair(observation.recorded, inventory)
        case AttachDevices() | DetachDevices():
            raise AssertionError("requests for VMs go to libvirt, not to the planner")


def _names_on(words: Sequence[str], node: str) -> tuple[str, ...]:
    return tuple(name for where, name in map(split_place, words) if where == node)


def title(request: AnyChangeRequest) -> str:
    """Describe a request in a few words."""
    match request:
        case PartitionGpu():
            where = f"GPU {request.gpu} of {request.node}"
            whole = {"empty": f"Destroy all instances of {where}", "disabled": f"Disable MIG mode on {where}"}
            return whole.get(request.mig.strip(), f"Partition {where} into {request.mig}")
        case FitInstance():
            return f"Make room for one more {request.profile} on GPU {request.gpu} of {request.node}"
        case SetLayout():
            verb = "Set" if request.enabled else "Disable"
            return f"{verb} the MIG configuration of GPU {request.gpu} of {request.node}"
        case SwitchFunctions():
            return f"{'Enable' if request.on else 'Disable'} virtual functions: {_some(request.gpus, 'GPU')}"
        case SetVgpus():
            what = f"Create {shares.short(request.type)}" if request.type else "Destroy the vGPU"
            return f"{what} on {_some(request.places, 'place')}"
        case UseConfig():
            return f'Use the named config "{request.config}" on {_some(request.nodes, "node")}'
        case Repair():
            return f"Restore {request.node} to its last request"
        case AttachDevices() | DetachDevices():
            verb, where = ("Attach", "to") if isinstance(request, AttachDevices) else ("Detach", "from")
            return f"{verb} {_some(request.devices, 'device')} {where} {request.vm}"


def _some(words: Sequence[str], what: str) -> str:
    return words[0] if len(words) == 1 else f"{len(words)} {what}s"
