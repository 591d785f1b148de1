"""What is told beside the objects: the node's annotation and label, events, and how the agent stands."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from aliquot.core.model.stored import Stored
from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.errors import ApiError
from aliquot.kubernetes.client.object_base import Condition, KubeObject
from aliquot.kubernetes.client.objects import Event
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch
from aliquot.kubernetes.gpu.node_patch import change_node
from aliquot.kubernetes.gpu.node_status import LIMIT, rfc3339
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.virtual_machines.agent.informers import NodeDeviceInformers
from aliquot.kubernetes.virtual_machines.harvester.conditions import PENDING
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION

DevicesState = Literal["working", "waiting", "idle"]
COMPONENT = "aliquot-devices"
READY = "Ready"


class DevicesAgentStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the agent stands on this node. ``state``: working, waiting (no driver answers), or idle (somebody else
    reconciles these kinds, or the cluster does not have them). ``reason`` is a word for programs, ``sentence`` for
    people; ``since`` is when state or reason last changed, RFC 3339.
    """

    state: Stored[DevicesState]
    reason: str
    sentence: str
    since: str = ""

    @property
    def degraded(self) -> bool:
        return self.state != "working"

    def at(self, now: float, previous: DevicesAgentStatus | None) -> DevicesAgentStatus:
        """Stamped: ``since`` stays while nothing moved."""
        same = (
            previous is not None and (previous.state, previous.reason) == (self.state, self.reason) and previous.since
        )
        return msgspec.structs.replace(self, since=previous.since if previous and same else rfc3339(now))


def parse(text: str | None) -> DevicesAgentStatus | None:
    """The annotation; None where there is none, or none that can be read."""
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=DevicesAgentStatus)
    except (msgspec.DecodeError, RecursionError):
        return None


class NodeStatusReporter:
    """Tells the node and its watchers. An event that cannot be written is logged: it must keep nobody from a wish."""

    def __init__(self, informers: NodeDeviceInformers, clock: Callable[[], float] = time.time) -> None:
        self._informers = informers
        self._clock = clock

    async def report_status(self, status: DevicesAgentStatus, *, driver_needed: bool | None) -> None:
        """The node's annotation, and its label for the driver's pod (None leaves that alone). Nothing is written where
        it says so already. Raises ApiError.
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
        log.log(30 if stamped.degraded else 20, "%s", stamped.sentence)
        await self.event(
            self._node_reference(), "Warning" if stamped.degraded else "Normal", stamped.reason, stamped.sentence
        )

    def _node_reference(self) -> dict[str, str]:
        """The node as what an event is about: kubectl looks for a node's events under its name as the uid, as kubelet
        writes them.
        """
        name = self._informers.name
        return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": name}

    async def warn(self, reason: str, sentence: str) -> None:
        """Write a warning as an event on the node."""
        await self.event(self._node_reference(), "Warning", reason, sentence)

    async def report_change(self, previous: KubeObject | None, now: KubeObject) -> None:
        """An event on an object that has become ready, or is no longer, or for another reason."""
        before, after = _ready(previous), _ready(now)
        if after is None or (before is not None and (before.status, before.reason) == (after.status, after.reason)):
            return
        if after.status == "True" and (before is None or before.status == "True"):
            return
        if after.status == "Unknown":
            return
        about = {
            "apiVersion": now.TYPE.api_version,
            "kind": now.TYPE.kind,
            "name": now.name,
            "uid": now.metadata.uid,
        }
        text = after.message or "it is as wished"
        expected = after.status == "True" or after.reason == PENDING
        await self.event(about, "Normal" if expected else "Warning", after.reason or READY, text)

    async def event(self, about: dict[str, str], kind: str, reason: str, text: str) -> None:
        """One event about an object that is in no namespace; such events live in ``default``."""
        stamp = rfc3339(self._clock())
        body: dict[str, Any] = {
            "metadata": {"generateName": f"{about['name']}.", "namespace": "default"},
            "involvedObject": about,
            "type": kind,
            "reason": reason,
            "message": text if len(text) <= LIMIT else text[: LIMIT - 1] + "…",
            "source": {"component": COMPONENT, "host": self._informers.name},
            "reportingComponent": COMPONENT,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        try:
            await self._informers.api.create(Event, body, "default")
        except ApiError as error:
            log.warning("no event was written: %s", error.brief)


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
