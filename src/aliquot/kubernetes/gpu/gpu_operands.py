"""Operands of NVIDIA's GPU Operator on a node, and how they are paused for a change.

The DaemonSet of an operand selects nodes by a deploy label. While the label is ``paused-for-mig-change`` or
``paused-for-vgpu-change``, the selector does not match, the pod goes away, and the operator's controller keeps the
value. Label and pod names are those of NVIDIA's mig-manager, vgpu-device-manager and GPU Operator, so these managers
and Aliquot can take over a node from each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from aliquot.core.model.actions import Reset, SetMode
from aliquot.core.model.plan import Plan
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu.pause_owner import PauseOwner

CLIENT = "client"
OFF = "false"
ON = "true"
PAUSED = (names.PAUSED, names.PAUSED_FOR_VGPU)
"""Values of a paused operand's label."""


class Operand(msgspec.Struct, frozen=True):
    """An operand of the GPU Operator."""

    name: str
    app: str = ""
    """Value of the ``app`` label of its pods; empty if unknown."""
    session: bool = True
    """True if it keeps GPUs open, which blocks a reset and a change of MIG mode."""
    enumerates: bool = False
    """True if it reads the devices only at its start, so that it must restart after a change."""
    paused: str = names.PAUSED
    """Value of its label during a pause."""

    @property
    def label(self) -> str:
        return names.DEPLOY_PREFIX + self.name


OPERANDS = (
    Operand("device-plugin", "nvidia-device-plugin-daemonset", enumerates=True),
    Operand("gpu-feature-discovery", "gpu-feature-discovery", enumerates=True),
    Operand("dcgm-exporter", "nvidia-dcgm-exporter", enumerates=True),
    Operand("dcgm", "nvidia-dcgm"),
    Operand("nvsm"),
    Operand(CLIENT, enumerates=True),
)
"""Operands in the order of the waits: exporters before the host engine that they connect to.

DCGM's host engine notices new and destroyed MIG devices within 1-2 s. Its counters release an instance when the
exporter that requested them disconnects. Third-party clients set the label in order to be paused during a change and to
see the new devices after it.
"""


VM_OPERANDS = (
    Operand(
        "sandbox-device-plugin",
        "nvidia-sandbox-device-plugin-daemonset",
        enumerates=True,
        paused=names.PAUSED_FOR_VGPU,
    ),
    Operand("sandbox-validator", "nvidia-sandbox-validator", enumerates=True, paused=names.PAUSED_FOR_VGPU),
)
"""Operands of a node whose vGPUs are for VMs, in the order of the waits of NVIDIA's vgpu-device-manager."""


def operands_for(plan: Plan, operands: tuple[Operand, ...] = OPERANDS) -> tuple[Operand, ...]:
    """Return those of the operands that must stop for a plan; none for an empty plan.

    A reset or change of MIG mode requires all that keep GPUs open. Any other plan requires those that must restart to
    see the new devices.
    """
    if not plan.actions:
        return ()
    deep = any(isinstance(action, Reset | SetMode) for action in plan.actions)
    return tuple(operand for operand in operands if operand.enumerates or (deep and operand.session))


class PauseRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of a pause, stored on the node so that it outlives the agent that paused."""

    previous_labels: dict[str, str] = msgspec.field(default_factory=dict, name="former")
    """Values of the deploy labels before the pause."""
    cordoned: bool = False
    """True if the agent cordoned the node."""
    requested: str = msgspec.field(default="", name="wish")
    """The request that the pause is for."""
    since: float = 0.0
    """Wall time in seconds; 0 if unknown."""
    owner: PauseOwner | None = None
    """The agent that paused; None in records of older versions."""


class NodeMarks(msgspec.Struct, frozen=True):
    """The parts of a node that a pause reads and writes."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    unschedulable: bool = False

    @property
    def pause_record(self) -> PauseRecord | None:
        """The record of the pause. An unreadable one counts as empty, so that its labels are restored to ``true``."""
        text = self.annotations.get(names.PAUSE_ANNOTATION)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=PauseRecord)
        except msgspec.DecodeError:
            return PauseRecord()


class NodePatch(msgspec.Struct, frozen=True):
    """The parts of a JSON merge patch of a node. A label or annotation that is None is removed."""

    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    cordon: bool | None = None
    """True cordons the node, False uncordons it, None leaves it as it is."""

    def body(self, resource_version: str | None = None) -> dict[str, Any]:
        """Build the body of the patch. With ``resource_version``, the server refuses it if the node changed since."""
        metadata: dict[str, Any] = {}
        if self.labels:
            metadata["labels"] = dict(self.labels)
        if self.annotations:
            metadata["annotations"] = dict(self.annotations)
        if resource_version:
            metadata["resourceVersion"] = resource_version
        body: dict[str, Any] = {"metadata": metadata} if metadata else {}
        if self.cordon is not None:
            body["spec"] = {"unschedulable": True if self.cordon else None}
        return body

    def __bool__(self) -> bool:
        return bool(self.labels or self.annotations or self.cordon is not None)


def merge_patches(first: NodePatch, second: NodePatch) -> NodePatch:
    """Merge two patches into one; the second overrides the first."""
    cordon = first.cordon if second.cordon is None else second.cordon
    return NodePatch(first.labels | second.labels, first.annotations | second.annotations, cordon)


ANONYMOUS = PauseOwner()
"""An agent without a lock: it may undo only a pause without an owner."""


def pause(
    node: NodeMarks,
    operands: Iterable[Operand],
    *,
    requested: str = "",
    now: float = 0.0,
    cordon: bool = False,
    owner: PauseOwner = ANONYMOUS,
) -> NodePatch:
    """Build the patch that pauses these operands and records their previous labels in the same request.

    A label that is absent or ``false`` is not changed: its operand does not run on this node. Records of an earlier
    pause stay unless their labels have changed since. A paused label without a record counts as a running operand. The
    patch is empty if nothing is left to do, or if an agent other than ``owner`` has paused the node and is alive.
    """
    before = node.pause_record
    if before is not None and not owner.may_undo(before.owner):
        return NodePatch()
    previous_labels = {
        name: value for name, value in _previous_labels(before).items() if node.labels.get(name) in PAUSED
    }
    labels: dict[str, str | None] = {}
    for operand in operands:
        value = node.labels.get(operand.label)
        if value is None or value == OFF or operand.label in previous_labels:
            continue
        previous_labels[operand.label] = ON if value in PAUSED else value
        if value not in PAUSED:
            labels[operand.label] = operand.paused
    ours = node.unschedulable and before is not None and before.cordoned
    cordoning = cordon and not node.unschedulable
    if before is None and not previous_labels and not cordoning:
        return NodePatch()
    since = now if before is None else before.since
    after = PauseRecord(previous_labels, ours or cordoning, requested, since, owner if owner.agent else None)
    if after == before and not labels and not cordoning:
        return NodePatch()
    record_text = msgspec.json.encode(after, order="deterministic").decode()
    return NodePatch(labels, {names.PAUSE_ANNOTATION: record_text}, True if cordoning else None)


def restore(node: NodeMarks, owner: PauseOwner = ANONYMOUS, writer: str = "") -> NodePatch:
    """Build the patch that restores the previous values of paused labels and lifts the agent's own cordon.

    A label that was set to another value meanwhile stays as it is. A paused label without a record
    becomes ``true``. The patch is empty if nothing is paused, or if an agent other than ``owner`` has paused the node
    and is alive. It is also empty while another process, ``writer``, changes the GPUs, as their clients would block it.
    """
    pause_record = node.pause_record
    if writer or (pause_record is not None and not owner.may_undo(pause_record.owner)):
        return NodePatch()
    previous_labels = _previous_labels(pause_record)
    labels: dict[str, str | None] = {
        name: previous_labels.get(name, ON)
        for name, value in node.labels.items()
        if value in PAUSED and name.startswith(names.DEPLOY_PREFIX)
    }
    if pause_record is None:
        return NodePatch(labels)
    return NodePatch(labels, {names.PAUSE_ANNOTATION: None}, False if pause_record.cordoned else None)


def _previous_labels(pause_record: PauseRecord | None) -> dict[str, str]:
    if pause_record is None:
        return {}
    return {name: ON if value in PAUSED else value for name, value in pause_record.previous_labels.items()}
