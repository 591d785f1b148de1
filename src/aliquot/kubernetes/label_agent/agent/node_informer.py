"""Informer of the agent: its own Node and the configured ConfigMaps, kept current by watches.

Each watch selects one object, so that the cost of a node for the API server does not grow with the cluster. The
response to a patch enters the cache at once: the next observation must see what the last step wrote.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, NotFoundError
from aliquot.kubernetes.client.events import EventText, EventType
from aliquot.kubernetes.client.informer import Ended, Informer, Key
from aliquot.kubernetes.client.objects import ConfigMap, Node
from aliquot.kubernetes.client.watch import DEFAULT_TIMING
from aliquot.kubernetes.gpu import change_report, names
from aliquot.kubernetes.gpu import node_pods as pods
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch
from aliquot.kubernetes.gpu.node_patch import change_node, node_marks
from aliquot.kubernetes.gpu.node_status import AgentStatus
from aliquot.kubernetes.node_agent.event_writer import EventWriter
from aliquot.kubernetes.node_agent.own_node import OwnNode
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse


class NotReadYetError(Exception):
    """The node, or a required ConfigMap, is not read yet or does not exist. A watch will deliver it."""


class NodeInformer:
    """Informer of the node and its ConfigMaps. ``nodes`` is shared with other roles; its owner runs it.

    After each change, ``wake`` is called and ``changes`` is incremented. ``ended`` is called if a watch ends
    unexpectedly.
    """

    def __init__(
        self,
        api: Api,
        nodes: OwnNode,
        namespace: str,
        wake: Callable[[], None],
        ended: Ended = lambda _: None,
    ) -> None:
        self.api = api
        self.name = nodes.name
        self.namespace = namespace
        self.events = EventWriter(api, names.FIELD_MANAGER, nodes.name)
        self.changes = 0
        self.nodes = nodes
        nodes.listen(self._notify, _relevant_fields, self._reporter(""))
        self.followed_maps: dict[str, Informer[ConfigMap]] = {}
        self._errors: dict[str, str] = {}
        self._wake = wake
        self._ended = ended

    # -- reading

    async def close(self) -> None:
        """Stop the watches of ConfigMaps."""
        for informer in self.followed_maps.values():
            await informer.close()

    def follow(self, config_maps: Iterable[str]) -> None:
        """Watch exactly these ConfigMaps of the agent's namespace."""
        wanted = set(filter(None, config_maps))
        for name in set(self.followed_maps) - wanted:
            self.followed_maps.pop(name).stop()
            self._errors.pop(name, None)
        for name in wanted - set(self.followed_maps):
            self.followed_maps[name] = self._config_map_informer(name)
            self.followed_maps[name].start(self.api, self._ended)

    def _config_map_informer(self, name: str) -> Informer[ConfigMap]:
        report = self._reporter(name)
        return Informer(
            ConfigMap, self._notify, namespace=self.namespace, name=name, timing=DEFAULT_TIMING, report=report
        )

    @property
    def node(self) -> Node | None:
        return self.nodes.node

    @property
    def config_maps(self) -> dict[str, dict[str, str] | None]:
        """Data of the ConfigMaps that are read; None for one that does not exist."""
        return {
            name: next((found.data for found in informer.items), None)
            for name, informer in self.followed_maps.items()
            if informer.synced
        }

    def has_read(self, name: str) -> bool:
        """Report whether a ConfigMap was read or does not exist."""
        return not name or name in self.config_maps

    @property
    def marks(self) -> NodeMarks:
        """The parts of the node that the agent uses. Raises NotReadYetError if the node is not read yet."""
        if self.node is None:
            raise NotReadYetError(self.name)
        return node_marks(self.node)

    @property
    def unavailable(self) -> str:
        """Reason why an object cannot be read from the API server; empty if all can."""
        return next(iter(self._errors.values()), "")

    def _notify(self, _: set[Key]) -> None:
        self.changes += 1
        self._wake()

    def _reporter(self, who: str) -> Callable[[ApiError | None], None]:
        """Return the error listener of a watch. An unavailable server and each missing permission are logged once."""

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
                log.warning("%s", error.one_line)
            self._errors[who] = error.brief

        return report

    async def living_uses(self, uses: Sequence[PodDeviceUse]) -> Sequence[PodDeviceUse]:
        """Return the uses whose pods have not ended, as older kubelets list ended pods too; all if this is unknown."""
        try:
            found = await pods.pods_on_node(self.api, self.name, lambda pod: True)
        except ApiError:
            return uses
        present = {(pod.metadata.namespace, pod.metadata.name) for pod in found}
        return [use for use in uses if (use.namespace, use.pod) in present]

    # -- writing

    async def change(self, change: Callable[[NodeMarks], NodePatch]) -> None:
        """Change the node by the patch that ``change`` returns for its current state. Raises ApiError.

        ``change`` does not get the cached state, so that no concurrent change is overwritten.
        """
        previous = self.node
        self.nodes.record_write(previous, await change_node(self.api, self.name, change))

    async def event(self, status: AgentStatus) -> None:
        """Write the status of the request as an event on the node."""
        event_type: EventType = "Warning" if status.state == "failed" else "Normal"
        annotations = change_report.event_annotations(status.change)
        await self.events.write(EventText(event_type, status.reason, status.sentence, annotations))

    async def write_config_map(self, name: str, body: dict[str, object]) -> None:
        """Patch a ConfigMap of the agent's namespace, or create it if it does not exist. Raises ApiError."""
        followed = self.followed_maps.get(name)
        previous = followed.get(name, self.namespace) if followed is not None else None
        try:
            found = await self.api.patch(ConfigMap, name, body, namespace=self.namespace)
        except NotFoundError:
            found = await self.api.create(ConfigMap, body, self.namespace)
        if followed is not None:
            followed.record_write(previous, found)


def _relevant_fields(node: Node) -> tuple[object, ...]:
    """Return the parts of a node that the agent uses: a heartbeat must not trigger a cycle."""
    return node.metadata.labels, node.metadata.annotations, node.spec.unschedulable, node.metadata.uid
