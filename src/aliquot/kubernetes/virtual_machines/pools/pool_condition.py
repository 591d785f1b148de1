"""The condition of a pool: whether it has what it requests, and why not."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from aliquot.errors import Message
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.kinds.harvester import VGPUDevice
from aliquot.kubernetes.kinds.vgpu_pools import VGPUPool, VGPUPoolSpec
from aliquot.kubernetes.virtual_machines.harvester.admission.snapshot import AdmissionSnapshot
from aliquot.kubernetes.virtual_machines.harvester.admission.vgpu_pools import explain_unknown_type
from aliquot.kubernetes.virtual_machines.harvester.conditions import ConditionState
from aliquot.kubernetes.virtual_machines.harvester.reasons import ObjectVerdict, join_names


class PoolProgress(msgspec.Struct, frozen=True):
    """The progress of a pool after a round: its devices, and what it lacks."""

    good: Sequence[VGPUDevice]
    """Its devices of the right type and place, apart from those that wait for an agent that does not answer."""
    held: Sequence[VGPUDevice]
    """Its wrong devices that VMs hold."""
    ready: int
    """How many of ``good`` have their vGPU."""
    short: int
    """How many vGPUs find no place."""
    reasons: Sequence[Message]
    """Why they find none."""
    awaited: Sequence[str]
    """What agents still have to do."""
    holders: Sequence[Message]
    """Who uses its devices, in one clause each."""
    blocking: Sequence[Message]
    """Those of ``held``."""


def pool_condition(pool: VGPUPool, snapshot: AdmissionSnapshot, progress: PoolProgress) -> ConditionState:
    """Return the state of ``Ready``, and why."""
    count, type_name, short = pool.spec.count, pool.spec.type_name, progress.short
    if short > 0 and (unknown := explain_unknown_type(type_name)):
        return "False", ObjectVerdict("UnknownType", unknown, f"kubectl edit vgpupool {pool.name}")
    if short > 0:
        why = _missing_place(pool, snapshot) or _refusals(progress.reasons)
        text = f"{count - short - len(progress.held)} of {count} vGPUs of type {type_name} fit: {why.sentence}"
        if not progress.blocking:
            return "False", ObjectVerdict("Insufficient", text, why.next_step)
        return "False", ObjectVerdict(
            "Insufficient", f"{text}; {_in_use(progress.blocking)}", _first(progress.blocking)
        )
    if progress.held or len(progress.good) > count:
        return "False", ObjectVerdict("Held", _in_use(progress.holders), _first(progress.holders))
    if progress.ready < count:
        why = _pending_reason(pool, progress)
        return "False", ObjectVerdict(
            "Pending", f"{progress.ready} of {count} vGPUs exist{why.sentence}", why.next_step
        )
    return "True", ObjectVerdict("Configured", f"{count} vGPUs of type {type_name} exist")


def _pending_reason(pool: VGPUPool, progress: PoolProgress) -> Message:
    """Return what keeps vGPUs from existing, as the end of a sentence, and the next command."""
    for device in progress.good:
        if failure := _failure(device):
            reported = Message.parse(failure)
            step = reported.next_step or f"kubectl describe vgpudevice {device.name}"
            return Message(f": {device.name}: {reported.sentence}", step)
    why = f": {join_names(progress.awaited, 3)}" if progress.awaited else ""
    return Message(why, f"kubectl wait vgpupool/{pool.name} --for condition=Ready")


def _in_use(holders: Sequence[Message]) -> str:
    return f"vGPUs that should go are in use: {join_names((each.sentence for each in holders), 3)}"


def _first(holders: Sequence[Message]) -> str:
    """Return the command that ends the first use."""
    return next((each.next_step for each in holders if each.next_step), "")


def selects(spec: VGPUPoolSpec, node: Node) -> bool:
    """Report whether a node has the labels that a pool requests."""
    return all(node.metadata.labels.get(key) == value for key, value in spec.node_selector.items())


def _refusals(reasons: Sequence[Message]) -> Message:
    """Join the reasons, first those with a command of their own, and return the first command."""
    ordered = sorted(dict.fromkeys(reasons), key=lambda each: not each.next_step)
    text = join_names((each.sentence for each in ordered), 4) or "no GPU of this place has the type"
    return Message(text, next((each.next_step for each in ordered if each.next_step), "aliquot capacity"))


def _missing_place(pool: VGPUPool, snapshot: AdmissionSnapshot) -> Message | None:
    """Return what a pool's place lacks altogether, with the command that shows what there is; None if nothing."""
    spec = pool.spec
    if spec.node_name and spec.node_name not in snapshot.nodes:
        return Message(f"node {spec.node_name} does not exist", "kubectl get nodes")
    if spec.gpu and spec.gpu not in snapshot.gpus:
        return Message(f"SRIOVGPUDevice {spec.gpu} does not exist", "kubectl get sriovgpudevices")
    if spec.node_selector and not any(selects(spec, node) for node in snapshot.nodes.values()):
        wanted = ",".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items()))
        return Message(f"no node has the labels {wanted}", "kubectl get nodes --show-labels")
    return None


def _failure(device: VGPUDevice) -> str:
    """Return what the agent says about a device that it cannot bring to its request."""
    ready = next((c for c in device.status.conditions if c.type == "Ready"), None)
    return ready.message if ready is not None and ready.status == "False" and ready.reason != "Pending" else ""
