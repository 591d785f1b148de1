"""The devices agent's corner of the API server: its own node, that node's objects and pods, kept by watches.

Kinds that carry the node's name as a label are watched by it, so that a node costs the server what it has itself.
Claims and MigConfigurations have no such label in Harvester; all are read, and other nodes' forgotten at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliquot.foundation.logfmt import agent_log
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.informer import Ended, Informer, InformerGroup, Key
from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects

_LONGEST_LABEL = 63

AnyInformer = Informer[Any]


class NodeDeviceInformers(InformerGroup):
    """``wake`` is called whenever something in it changed; ``ended`` for a watch that ends, which none should."""

    def __init__(self, api: Api, node: str, wake: Callable[[], None], ended: Ended = lambda _: None) -> None:
        def changed(_: set[Key]) -> None:
            wake()

        def is_own(item: SRIOVGPUDevice | VGPUDevice | MigConfiguration | PCIDeviceClaim | Pod) -> bool:
            return item.spec.node_name == node

        self.api = api
        self.name = node
        # A longer name cannot be a label's value: then all are read.
        labels = {names.NODE_LABEL: node} if len(node) <= _LONGEST_LABEL else None
        log = agent_log
        self.gpus = Informer(SRIOVGPUDevice, changed, labels=labels, is_own=is_own, log=log)
        self.vgpus = Informer(VGPUDevice, changed, labels=labels, is_own=is_own, log=log)
        self.migs = Informer(MigConfiguration, changed, is_own=is_own, log=log)
        self.functions = Informer(PCIDevice, changed, labels=labels, is_own=self._is_own_function, log=log)
        self.claims = Informer(PCIDeviceClaim, changed, is_own=is_own, log=log)
        self.nodes = Informer(Node, changed, name=node, relevant_part=_relevant_node_fields, log=log)
        self.pods = Informer(
            Pod,
            changed,
            namespace=ALL_NAMESPACES,
            fields={"spec.nodeName": node},
            is_own=is_own,
            relevant_part=_relevant_pod_fields,
            log=log,
        )
        self.device_informers: tuple[AnyInformer, ...] = self.gpus, self.vgpus, self.migs, self.functions, self.claims
        super().__init__(*self.device_informers, self.nodes, self.pods)
        self._ended = ended

    def _is_own_function(self, item: PCIDevice) -> bool:
        """A PCIDevice says whose it is in its status, which a moment after its creation is still empty."""
        return (item.status.node_name or item.metadata.labels.get(names.NODE_LABEL)) == self.name

    def informer(self, kind: str) -> AnyInformer:
        """That of a kind by name. Raises KeyError for one that is none of ours."""
        return {informer.kind.TYPE.kind: informer for informer in self.device_informers}[kind]

    @property
    def missing_kinds(self) -> tuple[str, ...]:
        """The kinds that the cluster does not have."""
        return tuple(informer.kind.TYPE.kind for informer in self.device_informers if informer.absent)

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
        for informer in self.all_informers:
            informer.start(self.api, self._ended)

    async def close(self) -> None:
        for informer in self.all_informers:
            await informer.close()


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
