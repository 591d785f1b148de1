"""The devices agent's corner of the API server: its own node, that node's objects and pods, kept by watches.

Kinds that carry the node's name as a label are watched by it, so that a node costs the server what it has itself.
Claims and MigConfigurations have no such label in Harvester; all are read, and other nodes' forgotten at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from aliquot.kubernetes.client.client import EVERYWHERE, Api
from aliquot.kubernetes.client.informer import Shelf
from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects

_LONGEST_LABEL = 63

AnyShelf = Shelf[Any]


class Corner:
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
        self.gpus = Shelf(SRIOVGPUDevice, wake, mine=lambda item: item.spec.node_name == node)
        self.vgpus = Shelf(VGPUDevice, wake, mine=lambda item: item.spec.node_name == node)
        self.migs = Shelf(MigConfiguration, wake, mine=lambda item: item.spec.node_name == node)
        self.functions = Shelf(PCIDevice, wake, mine=self._function)
        self.claims = Shelf(PCIDeviceClaim, wake, mine=lambda item: item.spec.node_name == node)
        self.nodes = Shelf(Node, wake, mine=lambda item: item.name == node, seen=_of_node)
        self.pods = Shelf(Pod, wake, mine=lambda item: item.spec.node_name == node, seen=_of_pod)
        self._ended = ended
        self._tasks: list[asyncio.Task[None]] = []

    def _function(self, item: PCIDevice) -> bool:
        """A PCIDevice says whose it is in its status, which a moment after its creation is still empty."""
        return (item.status.node_name or item.metadata.labels.get(names.NODE_LABEL)) == self.name

    @property
    def kinds(self) -> tuple[AnyShelf, ...]:
        """The shelves of Harvester's kinds."""
        return self.gpus, self.vgpus, self.migs, self.functions, self.claims

    def shelf(self, kind: str) -> AnyShelf:
        """That of a kind by name. Raises KeyError for one that is none of ours."""
        return {shelf.kind.TYPE.kind: shelf for shelf in self.kinds}[kind]

    @property
    def unread(self) -> str:
        """What was not read yet, "" when all was."""
        return next((str(s.kind.TYPE) for s in (*self.kinds, self.nodes, self.pods) if not s.known), "")

    @property
    def absent(self) -> tuple[str, ...]:
        """The kinds that the cluster does not have."""
        return tuple(shelf.kind.TYPE.kind for shelf in self.kinds if shelf.absent)

    @property
    def away(self) -> str:
        """Why something cannot be read from the API server, "" if all can."""
        return next((s.away for s in (*self.kinds, self.nodes, self.pods) if s.away), "")

    @property
    def node(self) -> Node | None:
        return next(iter(self.nodes.items), None)

    def objects(self) -> Objects:
        """This node's objects as they are known now."""
        return Objects(
            gpus=self.gpus.named,
            vgpus=self.vgpus.named,
            migs=self.migs.named,
            functions=self.functions.named,
            claims=self.claims.named,
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
        for shelf in (self.gpus, self.vgpus, self.functions):
            yield shelf.follow(self.api, labels=labels)
        for whole in (self.migs, self.claims):
            yield whole.follow(self.api)
        yield self.nodes.follow(self.api, name=self.name)
        yield self.pods.follow(self.api, namespace=EVERYWHERE, fields={"spec.nodeName": self.name})

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _of_node(node: Node) -> object:
    """What of a node matters here: a heartbeat, or the other agent's progress, is no reason to look at the GPUs."""
    meta = node.metadata
    return meta.uid, meta.labels.get(names.DRIVER_NEEDED_LABEL), meta.annotations.get(DEVICES_ANNOTATION)


def _of_pod(pod: Pod) -> object:
    """What of a pod matters: whose it is, and whether it is ready, ending or over."""
    ready = [c.status for c in pod.status.conditions if c.type == "Ready"]
    owners = [(owner.kind, owner.name) for owner in pod.metadata.owner_references]
    parts = [(part.ready, part.container_id) for part in pod.status.container_statuses]
    meta = pod.metadata
    return meta.uid, meta.labels, pod.status.phase, ready, parts, meta.deletion_timestamp, owners
