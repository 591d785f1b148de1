"""The agent's corner of the API server: its own Node and the ConfigMaps that it was told to read, kept by watches.

Each watch names one object, so that what a node costs the server does not grow with the cluster. What a patch answers
goes into the corner at once: the next look must see what the last step wrote.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, NotFoundError
from aliquot.kubernetes.client.objects import ConfigMap, Event, Node
from aliquot.kubernetes.client.watch import InitialList, ObjectChanged, ObjectDeleted, watch
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu import node_pods as pods
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch
from aliquot.kubernetes.gpu.node_patch import change_node, node_marks
from aliquot.kubernetes.gpu.node_status import FAILED, AgentStatus, rfc3339
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse

STALE_S = 10.0
"""A watch is no further behind what the server answered to us than this."""


class NotReadYetError(Exception):
    """The node, or a ConfigMap that matters, is not known yet, or is not there: a watch will tell."""


class NodeInformer:
    """``wake`` is called whenever something in it changed, and ``changes`` grows; ``ended`` for a watch that ends,
    which none should.
    """

    def __init__(
        self,
        api: Api,
        node: str,
        namespace: str,
        wake: Callable[[], None],
        ended: Callable[[asyncio.Task[None]], None] = lambda _: None,
    ) -> None:
        self.api = api
        self.name = node
        self.namespace = namespace
        self.node: Node | None = None
        self.config_maps: dict[str, dict[str, str] | None] = {}
        self.changes = 0
        self._errors: dict[str, str] = {}
        self._changed_at = -STALE_S
        self._wake = wake
        self._ended = ended
        self._tasks: dict[str, asyncio.Task[None]] = {}

    # -- reading

    async def start(self) -> None:
        """Begins to watch the node."""
        self._tasks[""] = asyncio.create_task(self._follow_node())
        self._tasks[""].add_done_callback(self._ended)

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def follow(self, config_maps: Iterable[str]) -> None:
        """Watch exactly these ConfigMaps of the agent's namespace from now on."""
        wanted = set(filter(None, config_maps))
        for name in set(self._tasks) - wanted - {""}:
            self._tasks.pop(name).cancel()
            self.config_maps.pop(name, None)
            self._errors.pop(name, None)
        for name in wanted - set(self._tasks):
            self._tasks[name] = asyncio.create_task(self._follow_map(name))
            self._tasks[name].add_done_callback(self._ended)

    def has_read(self, name: str) -> bool:
        """True once it is known what that ConfigMap says, or that it is not there."""
        return not name or name in self.config_maps

    @property
    def marks(self) -> NodeMarks:
        """What of the node is read here. Raises NotReadYetError while there is none."""
        if self.node is None:
            raise NotReadYetError(self.name)
        return node_marks(self.node)

    @property
    def unavailable(self) -> str:
        """Why something cannot be read from the API server, "" if all can."""
        return next(iter(self._errors.values()), "")

    async def _follow_node(self) -> None:
        async for change in watch(self.api, Node, name=self.name, report=self._reporter("")):
            match change:
                case InitialList(items):
                    self._set_node(items[0] if items else None)
                case ObjectChanged(item) if not self._is_outdated(item):
                    self._set_node(item)
                case ObjectDeleted():
                    self._set_node(None)

    async def _follow_map(self, name: str) -> None:
        report = self._reporter(name)
        async for change in watch(self.api, ConfigMap, namespace=self.namespace, name=name, report=report):
            match change:
                case InitialList(items):
                    self.config_maps[name] = items[0].data if items else None
                case ObjectChanged(item):
                    self.config_maps[name] = item.data
                case ObjectDeleted():
                    self.config_maps[name] = None
            self._notify()

    def _set_node(self, node: Node | None) -> None:
        previous, self.node = self.node, node
        if node is None or previous is None or _relevant_fields(previous) != _relevant_fields(node):
            self._notify()

    def _is_outdated(self, node: Node) -> bool:
        """True if the watch tells of a time before our own last change, whose answer is known already."""
        known = self.node
        if known is None or known.metadata.uid != node.metadata.uid or time.monotonic() - self._changed_at > STALE_S:
            return False
        return _is_older(node, known)

    def _notify(self) -> None:
        self.changes += 1
        self._wake()

    def _reporter(self, who: str) -> Callable[[ApiError | None], None]:
        """For one watch. A server that is away is told once, and so is each right that is missing."""

        def report(error: ApiError | None) -> None:
            previous = self._errors.pop(who, "")
            if error is None:
                if previous and not self._errors:
                    log.info("the API server answers again")
                    self._wake()
                return
            reported = {previous, *self._errors.values()} - {""}
            known = bool(reported) if isinstance(error, ApiUnavailableError) else error.brief in reported
            if not known:
                log.warning("%s%s", error.brief, f" | next: {error.next_step}" if error.next_step else "")
            self._errors[who] = error.brief

        return report

    async def living_uses(self, uses: Sequence[PodDeviceUse]) -> Sequence[PodDeviceUse]:
        """Those whose pods have not ended: older kubelets go on naming pods that have. All where nobody can tell."""
        try:
            found = await pods.pods_on_node(self.api, self.name, lambda pod: True)
        except ApiError:
            return uses
        present = {(pod.metadata.namespace, pod.metadata.name) for pod in found}
        return [use for use in uses if (use.namespace, use.pod) in present]

    # -- writing

    async def change(self, change: Callable[[NodeMarks], NodePatch]) -> None:
        """Changes the node by what ``change`` makes of it as it is now, not as it was when it was last seen: nobody's
        label is overwritten. Raises ApiError.
        """
        answer = await change_node(self.api, self.name, change)
        # The watch may have told of a still newer change while this answer was on its way.
        if self.node is None or not _is_older(answer, self.node):
            self.node = answer
        self._changed_at = time.monotonic()

    async def event(self, status: AgentStatus, now: float) -> None:
        """Write what has become of the wish as an event on the node."""
        await self._event("Warning" if status.state == FAILED else "Normal", status.reason, status.sentence, now)

    async def warn(self, reason: str, sentence: str) -> None:
        """Write a warning as an event on the node."""
        await self._event("Warning", reason, sentence, time.time())

    async def _event(self, kind: str, reason: str, sentence: str, now: float) -> None:
        """An event on the node, where ``kubectl describe node`` shows it. A failure is logged: an event that cannot be
        written must not keep the node from its wish.
        """
        stamp = rfc3339(now)
        body = {
            "metadata": {"generateName": f"{self.name}.", "namespace": "default"},
            # kubectl looks for a node's events under its name as the uid, as kubelet writes them.
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": self.name, "uid": self.name},
            "type": kind,
            "reason": reason,
            "message": sentence,
            "source": {"component": names.FIELD_MANAGER, "host": self.name},
            "reportingComponent": names.FIELD_MANAGER,
            "firstTimestamp": stamp,
            "lastTimestamp": stamp,
            "count": 1,
        }
        try:
            await self.api.create(Event, body, "default")
        except ApiError as error:
            log.warning("no event was written: %s", error.brief)

    async def write_config_map(self, name: str, body: dict[str, object]) -> None:
        """Creates a ConfigMap of the agent's namespace, or makes it say this. Raises ApiError."""
        try:
            found = await self.api.patch(ConfigMap, name, body, namespace=self.namespace)
        except NotFoundError:
            found = await self.api.create(ConfigMap, body, self.namespace)
        if name in self._tasks:
            self.config_maps[name] = found.data


def _is_older(node: Node, known: Node) -> bool:
    """True if the one is of a time before the other. Versions are in order over all nodes of a cluster, whatever their
    uid, wherever they are numbers.
    """
    older, newer = node.metadata.resource_version, known.metadata.resource_version
    return older.isdecimal() and newer.isdecimal() and int(older) < int(newer)


def _relevant_fields(node: Node) -> tuple[object, ...]:
    """What of a node is looked at here: a heartbeat is no reason to look at the GPUs."""
    return node.metadata.labels, node.metadata.annotations, node.spec.unschedulable, node.metadata.uid
