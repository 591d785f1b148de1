"""What NVIDIA's GPU Operator runs on a node beside the workloads, and how it is taken out of the way for a change.

An operand's DaemonSet selects nodes by a deploy label. While the label says ``paused-for-mig-change`` it matches
nothing, the pod goes, and the operator's own controller leaves the value alone. Label and pod names are those of
NVIDIA's mig-manager and GPU Operator, so both can take over a node from each other.
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


class Operand(msgspec.Struct, frozen=True):
    """One operand. ``app`` is the ``app`` label of its pods, "" where no such label is known. ``session`` says that it
    keeps GPUs open, which refuses a reset and a change of MIG mode; ``enumerates`` that it looks at the devices once,
    when it starts, and so must start again to see others.
    """

    name: str
    app: str = ""
    session: bool = True
    enumerates: bool = False

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
"""In the order in which they are awaited: exporters before the host engine that they talk to.

DCGM's host engine follows MIG devices that come and go by itself (1-2 s later), and its counters let go of an instance
when the exporter, which asked for them, disconnects. Third-party clients carry the label because they want to be out of
the way and to see the new devices afterwards.
"""


def operands_for(plan: Plan) -> tuple[Operand, ...]:
    """The operands that must stop for a plan: all that keep GPUs open for a reset or a change of mode, else those that
    must look again, and none where nothing is to be done.
    """
    if not plan.actions:
        return ()
    deep = any(isinstance(action, Reset | SetMode) for action in plan.actions)
    return tuple(operand for operand in OPERANDS if operand.enumerates or (deep and operand.session))


class PauseRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The record of a pause, kept on the node itself so that it outlives whoever made it. ``previous_labels`` holds the
    values of the deploy labels; ``cordoned`` says that we made the node unschedulable; ``requested`` what for;
    ``since`` is wall time in seconds, 0 where it is not known; ``owner`` is the agent that paused, None in records of
    older versions.
    """

    previous_labels: dict[str, str] = msgspec.field(default_factory=dict, name="former")
    cordoned: bool = False
    requested: str = msgspec.field(default="", name="wish")
    since: float = 0.0
    owner: PauseOwner | None = None


class NodeMarks(msgspec.Struct, frozen=True):
    """What of a node is read and written here."""

    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    unschedulable: bool = False

    @property
    def pause_record(self) -> PauseRecord | None:
        """The record of a pause. One that cannot be read counts as empty: what it paused is healed to ``true``."""
        text = self.annotations.get(names.PAUSE_ANNOTATION)
        if text is None:
            return None
        try:
            return msgspec.json.decode(text, type=PauseRecord)
        except msgspec.DecodeError:
            return PauseRecord()


class NodePatch(msgspec.Struct, frozen=True):
    """A JSON merge patch of a node, in parts. None removes a label or annotation. ``cordon`` False lifts the cordon,
    None leaves it as it is.
    """

    labels: dict[str, str | None] = {}
    annotations: dict[str, str | None] = {}
    cordon: bool | None = None

    def body(self, resource_version: str | None = None) -> dict[str, Any]:
        """The patch as it is sent. With ``resource_version`` the server refuses it if the node changed since."""
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
    """Both in one request. Where they disagree the second wins."""
    cordon = first.cordon if second.cordon is None else second.cordon
    return NodePatch(first.labels | second.labels, first.annotations | second.annotations, cordon)


ANONYMOUS = PauseOwner()
"""An agent that holds no lock: it may undo only what has no owner."""


def pause(
    node: NodeMarks,
    operands: Iterable[Operand],
    *,
    requested: str = "",
    now: float = 0.0,
    cordon: bool = False,
    owner: PauseOwner = ANONYMOUS,
) -> NodePatch:
    """Takes these operands out of the way, and records in the same request how they were. A label that is absent or
    ``false`` is not touched: its operand does not run here. What an earlier pause recorded and nobody has changed since
    stays recorded; ``paused-for-mig-change`` that nobody recorded is taken for a running operand. Empty where nothing
    is left to do, and where another living agent than ``owner`` has paused.
    """
    before = node.pause_record
    if before is not None and not owner.may_undo(before.owner):
        return NodePatch()
    previous_labels = {
        name: value for name, value in _previous_labels(before).items() if node.labels.get(name) == names.PAUSED
    }
    labels: dict[str, str | None] = {}
    for operand in operands:
        value = node.labels.get(operand.label)
        if value is None or value == OFF or operand.label in previous_labels:
            continue
        previous_labels[operand.label] = ON if value == names.PAUSED else value
        if value != names.PAUSED:
            labels[operand.label] = names.PAUSED
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
    """Gives back every paused label its former value and lifts a cordon that was ours. What somebody has set to
    something else meanwhile stays as it is; ``paused-for-mig-change`` without a record becomes ``true``. Empty where
    nothing is paused, where another living agent than ``owner`` has paused, and while ``writer``, another process,
    changes the GPUs: their clients would be in its way.
    """
    pause_record = node.pause_record
    if writer or (pause_record is not None and not owner.may_undo(pause_record.owner)):
        return NodePatch()
    previous_labels = _previous_labels(pause_record)
    labels: dict[str, str | None] = {
        name: previous_labels.get(name, ON)
        for name, value in node.labels.items()
        if value == names.PAUSED and name.startswith(names.DEPLOY_PREFIX)
    }
    if pause_record is None:
        return NodePatch(labels)
    return NodePatch(labels, {names.PAUSE_ANNOTATION: None}, False if pause_record.cordoned else None)


def _previous_labels(pause_record: PauseRecord | None) -> dict[str, str]:
    if pause_record is None:
        return {}
    return {name: ON if value == names.PAUSED else value for name, value in pause_record.previous_labels.items()}
