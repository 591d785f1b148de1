"""Reports beside the objects' statuses: the node's annotation and label, events, and the agent's status."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal

import msgspec

from aliquot.core.model.stored import Stored
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.events import EventSubject, EventText, EventType, rfc3339
from aliquot.kubernetes.client.object_base import Condition, KubeObject
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch
from aliquot.kubernetes.gpu.node_patch import change_node
from aliquot.kubernetes.gpu.reasons import DRIVER_HANGS
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.node_agent.event_writer import EventWriter
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.reasons import PENDING, DevicesReason

DevicesState = Literal["working", "waiting", "idle"]
COMPONENT = "aliquot-devices"
READY = "Ready"


class DevicesAgentStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """The agent's status on this node. ``state`` is working, waiting (no driver answers), or idle (another controller
    reconciles these kinds, or the cluster does not have them). ``reason`` is a word for programs, ``sentence`` an
    explanation for people. ``since`` is when state or reason last changed (RFC 3339).
    """

    state: Stored[DevicesState]
    reason: Stored[DevicesReason]
    sentence: str
    since: str = ""

    @property
    def degraded(self) -> bool:
        return self.state != "working"

    def at(self, now: float, previous: DevicesAgentStatus | None) -> DevicesAgentStatus:
        """Return the status with ``since`` set, which stays while state and reason do not change."""
        same = (
            previous is not None and (previous.state, previous.reason) == (self.state, self.reason) and previous.since
        )
        return msgspec.structs.replace(self, since=previous.since if previous and same else rfc3339(now))


def parse(text: str | None) -> DevicesAgentStatus | None:
    """Parse the annotation; None if it is missing or unreadable."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=DevicesAgentStatus)
    except (msgspec.DecodeError, RecursionError):
        return None


class NodeStatusReporter:
    """The reporter for the node and its objects: the node's annotation and label, and events.

    With ``reports_hangs`` False, another role of the process logs a hanging driver call and writes its event.
    """

    def __init__(
        self, informers: NodeDeviceInformers, clock: Callable[[], float] = time.time, *, reports_hangs: bool = True
    ) -> None:
        self.events = EventWriter(informers.api, COMPONENT, informers.name, clock)
        self._informers = informers
        self._clock = clock
        self._reports_hangs = reports_hangs

    async def report_status(self, status: DevicesAgentStatus, *, driver_needed: bool | None) -> None:
        """Write the node's annotation and its label for the driver's pod, where they differ; None leaves the label
        alone.

        Raise ApiError if the write fails.
        """
        node = self._informers.node
        if node is None:
            return
        meta, now = node.metadata, self._clock()
        previous = parse(meta.annotations.get(DEVICES_ANNOTATION))
        stamped = status.at(now, previous)
        patch = _patch(NodeMarks(meta.labels, meta.annotations), stamped, driver_needed)
        if not patch:
            return
        written = await change_node(
            self._informers.api, self._informers.name, lambda m: _patch(m, stamped, driver_needed)
        )
        self._informers.nodes.record_write(node, written)
        if previous is not None and (previous.state, previous.reason) == (stamped.state, stamped.reason):
            return
        hung = stamped.reason == DRIVER_HANGS or (previous is not None and previous.reason == DRIVER_HANGS)
        if hung and not self._reports_hangs:
            return
        log.log(30 if stamped.degraded else 20, "%s", stamped.sentence)
        event_type: EventType = "Warning" if stamped.degraded else "Normal"
        await self.events.write(EventText(event_type, stamped.reason, stamped.sentence))

    async def report_change(self, previous: KubeObject | None, now: KubeObject) -> None:
        """Write an event for an object that became ready, stopped being ready, or has another reason."""
        before, after = _ready(previous), _ready(now)
        if after is None or (before is not None and (before.status, before.reason) == (after.status, after.reason)):
            return
        if after.status == "True" and (before is None or before.status == "True"):
            return
        if after.status == "Unknown":
            return
        subject = EventSubject(now.TYPE.api_version, now.TYPE.kind, now.name, now.metadata.uid)
        text = after.message or "the object is in its desired state"
        expected = after.status == "True" or after.reason == PENDING
        await self.events.write(EventText("Normal" if expected else "Warning", after.reason or READY, text), subject)


def _ready(item: KubeObject | None) -> Condition | None:
    status = getattr(item, "status", None)
    conditions: tuple[Condition, ...] = getattr(status, "conditions", ())
    return next((c for c in conditions if c.type == READY), None)


def _patch(marks: NodeMarks, status: DevicesAgentStatus, driver_needed: bool | None) -> NodePatch:
    annotations: dict[str, str | None] = {}
    text = msgspec.json.encode(status).decode()
    if marks.annotations.get(DEVICES_ANNOTATION) != text:
        annotations[DEVICES_ANNOTATION] = text
    labels: dict[str, str | None] = {}
    if driver_needed is not None:
        wanted = "true" if driver_needed else None
        if marks.labels.get(names.DRIVER_NEEDED_LABEL) != wanted:
            labels[names.DRIVER_NEEDED_LABEL] = wanted
    return NodePatch(labels, annotations)
