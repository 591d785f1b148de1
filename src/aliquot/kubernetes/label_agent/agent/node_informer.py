"""The agent's corner of the API server: its own Node and the ConfigMaps that it was told to read, kept by watches.

Each watch names one object, so that what a node costs the server does not grow with the cluster. What a patch answers
goes into the corner at once: the next look must see what the last step wrote.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence

from aliquot.foundation.logfmt import agent_log as log
from aliquot.kubernetes.client.client import Api
from aliquot.kubernetes.client.errors import ApiError, ApiUnavailableError, NotFoundError
from aliquot.kubernetes.client.informer import Ended, Informer, Key
from aliquot.kubernetes.client.objects import ConfigMap, Event, Node
from aliquot.kubernetes.client.watch import DEFAULT_TIMING
from aliquot.kubernetes.gpu import names
from aliquot.kubernetes.gpu import node_pods as pods
from aliquot.kubernetes.gpu.gpu_operands import NodeMarks, NodePatch
from aliquot.kubernetes.gpu.node_patch import change_node, node_marks
from aliquot.kubernetes.gpu.node_status import AgentStatus, rfc3339
from aliquot.kubernetes.node_agent.pod_holders import PodDeviceUse


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
        ended: Ended = lambda _: None,
    ) -> None:
        self.api = api
        self.name = node
        self.namespace = namespace
        self.changes = 0
        self.nodes = Informer(
            Node,
            self._notify,
            name=node,
            relevant_part=_relevant_fields,
            timing=DEFAULT_TIMING,
            report=self._reporter(""),
        )
        self.followed_maps: dict[str, Informer[ConfigMap]] = {}
        self._errors: dict[str, str] = {}
        self._wake = wake
        self._ended = ended

    # -- reading

    async def start(self) -> None:
        """Begins to watch the node."""
        self.nodes.start(self.api, self._ended)

    async def close(self) -> None:
        await self.nodes.close()
        for informer in self.followed_maps.values():
            await informer.close()

    def follow(self, config_maps: Iterable[str]) -> None:
        """Watch exactly these ConfigMaps of the agent's namespace from now on."""
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
        return self.nodes.get(self.name)

    @property
    def config_maps(self) -> dict[str, dict[str, str] | None]:
        """What those that were read say, None for one that is not there."""
        return {
            name: next((found.data for found in informer.items), None)
            for name, informer in self.followed_maps.items()
            if informer.synced
        }

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

    def _notify(self, _: set[Key]) -> None:
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
        previous = self.node
        self.nodes.record_write(previous, await change_node(self.api, self.name, change))

    async def event(self, status: AgentStatus, now: float) -> None:
        """Write what has become of the wish as an event on the node."""
        await self._event("Warning" if status.state == "failed" else "Normal", status.reason, status.sentence, now)

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
        followed = self.followed_maps.get(name)
        previous = followed.get(name, self.namespace) if followed is not None else None
        try:
            found = await self.api.patch(ConfigMap, name, body, namespace=self.namespace)
        except NotFoundError:
            found = await self.api.create(ConfigMap, body, self.namespace)
        if followed is not None:
            followed.record_write(previous, found)


def _relevant_fields(node: Node) -> tuple[object, ...]:
    """What of a node is looked at here: a heartbeat is no reason to look at the GPUs."""
    return node.metadata.labels, node.metadata.annotations, node.spec.unschedulable, node.metadata.uid
