"""The devices agent's corner of the API server: its own node, that node's objects and pods, kept by watches.

Kinds that carry the node's name as a label are watched by it, so that a node costs the server what it has itself.
Claims and MigConfigurations have no such label in Harvester; all are read, and other nodes' forgotten at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.informer import Informer
from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects

_LONGEST_LABEL = 63

AnyInformer = Informer[Any]


class NodeDeviceInformers:
    """``wake`` is called whenever something in it changed; ``ended`` for a watch that ends, which none should."""

    def __init__(
        self,
        api: Api,
        node: str,
        wake: Callable[[], None],
        ended: Callable[[asyncio.Task[None]], None] = lambda _: None,
    ) -> None:
        self.api = api
        self.name = node
        self.gpus = Informer(SRIOVGPUDevice, wake, is_own=lambda item: item.spec.node_name == node)
        self.vgpus = Informer(VGPUDevice, wake, is_own=lambda item: item.spec.node_name == node)
        self.migs = Informer(MigConfiguration, wake, is_own=lambda item: item.spec.node_name == node)
        self.functions = Informer(PCIDevice, wake, is_own=self._is_own_function)
        self.claims = Informer(PCIDeviceClaim, wake, is_own=lambda item: item.spec.node_name == node)
        self.nodes = Informer(Node, wake, is_own=lambda item: item.name == node, relevant_part=_relevant_node_fields)
        self.pods = Informer(
            Pod, wake, is_own=lambda item: item.spec.node_name == node, relevant_part=_relevant_pod_fields
        )
        self._ended = ended
        self._tasks: list[asyncio.Task[None]] = []

    def _is_own_function(self, item: PCIDevice) -> bool:
        """A PCIDevice says whose it is in its status, which a moment after its creation is still empty."""
        return (item.status.node_name or item.metadata.labels.get(names.NODE_LABEL)) == self.name

    @property
    def device_informers(self) -> tuple[AnyInformer, ...]:
        """The shelves of Harvester's kinds."""
        return self.gpus, self.vgpus, self.migs, self.functions, self.claims

    def informer(self, kind: str) -> AnyInformer:
        """That of a kind by name. Raises KeyError for one that is none of ours."""
        return {informer.kind.TYPE.kind: informer for informer in self.device_informers}[kind]

    @property
    def unsynced(self) -> str:
        """What was not read yet, "" when all was."""
        return next((str(s.kind.TYPE) for s in (*self.device_informers, self.nodes, self.pods) if not s.synced), "")

    @property
    def missing_kinds(self) -> tuple[str, ...]:
        """The kinds that the cluster does not have."""
        return tuple(informer.kind.TYPE.kind for informer in self.device_informers if informer.absent)

    @property
    def unavailable(self) -> str:
        """Why something cannot be read from the API server, "" if all can."""
        return next((s.unavailable for s in (*self.device_informers, self.nodes, self.pods) if s.unavailable), "")

    @property
    def node(self) -> Node | None:
        return next(iter(self.nodes.items), None)

    def objects(self) -> Objects:
        """This node's objects as they are known now."""
        return Objects(
            gpus=self.gpus.by_name,
            vgpus=self.vgpus.by_name,
            migs=self.migs.by_name,
            functions=self.functions.by_name,
            claims=self.claims.by_name,
        )

    async def start(self) -> None:
        """Begins to watch."""
        for work in self._watches():
            task = asyncio.create_task(work)
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def _watches(self) -> Iterator[Coroutine[Any, Any, None]]:
        # A longer name cannot be a label's value: then all are read.
        labels = {names.NODE_LABEL: self.name} if len(self.name) <= _LONGEST_LABEL else None
        for informer in (self.gpus, self.vgpus, self.functions):
            yield informer.follow(self.api, labels=labels)
        for whole in (self.migs, self.claims):
            yield whole.follow(self.api)
        yield self.nodes.follow(self.api, name=self.name)
        yield self.pods.follow(self.api, namespace=ALL_NAMESPACES, fields={"spec.nodeName": self.name})

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _relevant_node_fields(node: Node) -> object:
    """What of a node matters here: a heartbeat, or the other agent's progress, is no reason to look at the GPUs."""
    meta = node.metadata
    return meta.uid, meta.labels.get(names.DRIVER_NEEDED_LABEL), meta.annotations.get(DEVICES_ANNOTATION)


def _relevant_pod_fields(pod: Pod) -> object:
    """What of a pod matters: whose it is, and whether it is ready, ending or over."""
    ready = [c.status for c in pod.status.conditions if c.type == "Ready"]
    owners = [(owner.kind, owner.name) for owner in pod.metadata.owner_references]
    parts = [(part.ready, part.container_id) for part in pod.status.container_statuses]
    meta = pod.metadata
    return meta.uid, meta.labels, pod.status.phase, ready, parts, meta.deletion_timestamp, owners
