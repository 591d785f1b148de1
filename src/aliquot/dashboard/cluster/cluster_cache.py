"""Informers for a cluster: nodes, agents' documents and pods, named configs, and objects for VMs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import msgspec

from aliquot.core.engine.history import PastRun
from aliquot.dashboard.cluster.node_views import GPU_AGENTS, VGPU_AGENTS
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.informer import KIND_TIMING, Informer, InformerGroup, Key
from aliquot.kubernetes.client.object_base import KubeObject, ObjectMeta, ResourceType
from aliquot.kubernetes.client.objects import ConfigMap, Node, Pod
from aliquot.kubernetes.client.watch import WatchTiming
from aliquot.kubernetes.dra.model.claims import ResourceClaim
from aliquot.kubernetes.dra.model.objects import ResourceSlice
from aliquot.kubernetes.gpu import node_document as document
from aliquot.kubernetes.gpu.node_document import NodeDocument
from aliquot.kubernetes.kinds.harvester import SRIOVGPUDevice
from aliquot.kubernetes.virtual_machines.controller.informers import KUBEVIRT_NAMESPACE, VmClusterInformers
from aliquot.kubernetes.virtual_machines.webhook.admission_state import AdmissionState

MOST_MAPS = 256
"""The number of watched ConfigMaps that documents name. Each needs a watch, and documents are untrusted."""
AGENT_PODS = f"app in ({','.join((*GPU_AGENTS, *VGPU_AGENTS))})"


class _Data(msgspec.Struct, frozen=True):
    text: str = msgspec.field(name=document.KEY, default="")


class DocumentMap(KubeObject, frozen=True):
    """A ConfigMap with a node's document. Its text is decoded only once."""

    TYPE: ClassVar[ResourceType] = ConfigMap.TYPE

    metadata: ObjectMeta = ObjectMeta()
    data: _Data = _Data()


class ClusterCache:
    """Informers for a cluster.

    ``node_changed`` receives the names of changed nodes. ``changed`` is called when other objects changed.
    """

    def __init__(
        self,
        api: Api,
        node_changed: Callable[[set[str]], None],
        changed: Callable[[], None],
        *,
        kubevirt_namespace: str = KUBEVIRT_NAMESPACE,
        timing: WatchTiming = KIND_TIMING,
    ) -> None:
        self.api = api
        self._node_changed, self._changed, self._timing = node_changed, changed, timing
        self.nodes = Informer(Node, self._of_nodes, timing=timing)
        self.documents = Informer(DocumentMap, self._of_documents, labels=document.LABEL, timing=timing)
        self.pods = Informer(Pod, self._of_pods, labels=AGENT_PODS, timing=timing)
        self.gpus = Informer(SRIOVGPUDevice, self._of_anything, timing=timing)
        self.slices = Informer(ResourceSlice, self._of_anything, timing=timing)
        self.claims = Informer(ResourceClaim, self._of_anything, namespace=ALL_NAMESPACES, timing=timing)
        self._agents = InformerGroup(self.nodes, self.documents)
        self.informers = VmClusterInformers(
            self.nodes,
            self.gpus,
            changed,
            namespace=kubevirt_namespace,
            timing=timing,
            resource_claims=self.claims,
        )
        self.admission_state = AdmissionState(self.informers, frozenset())
        self.maps: dict[str, Informer[ConfigMap]] = {}
        self._read: dict[str, tuple[DocumentMap, NodeDocument | None]] = {}
        self._pods_of: dict[str, dict[str, Pod]] = {}
        self._node_of: dict[str, str] = {}
        self._group: asyncio.TaskGroup | None = None

    async def follow(self) -> None:
        """Run all informers, forever."""
        async with asyncio.TaskGroup() as group:
            self._group = group
            for each in (
                self._agents,
                self.pods,
                self.gpus,
                self.slices,
                self.claims,
                self.informers,
            ):
                group.create_task(each.follow(self.api))

    @property
    def ready(self) -> bool:
        """True once all nodes and documents were read."""
        return self._agents.synced

    @property
    def unavailable(self) -> str:
        """The reason that nodes or documents cannot be read now, "" if they can."""
        return self._agents.unavailable

    @property
    def virtualization_informers(self) -> tuple[Informer[Any], ...]:
        """The informers of Harvester's and KubeVirt's kinds."""
        informers = self.informers
        return (
            self.gpus,
            informers.vgpus,
            informers.migs,
            informers.functions,
            informers.claims,
            informers.vms,
            informers.instances,
        )

    def document(self, node: str, which: str) -> NodeDocument | None:
        """Return an agent's document, None if it is missing or cannot be decoded."""
        name = document.map_name(node, which)
        found = self.documents.get(name, self.api.namespace)
        if found is None:
            self._read.pop(name, None)
            return None
        cached = self._read.get(name)
        if cached is None or cached[0] is not found:
            cached = self._read[name] = found, document.decode(found.data.text)
        return cached[1]

    def pasts(self, node: str | None) -> dict[str, list[PastRun]]:
        """Return the newest changes from the documents of both agents, for one node or for all."""
        nodes = [node] if node is not None else list(self.nodes.by_name)
        found = {name: [self.document(name, which) for which in (document.GPUS, document.VGPUS)] for name in nodes}
        return {
            name: [past for each in documents if each is not None for past in each.past_runs]
            for name, documents in found.items()
        }

    def pods_on(self, node: str) -> tuple[Pod, ...] | None:
        """Return the agents' pods on a node, None if pods cannot be read."""
        return tuple(self._pods_of.get(node, {}).values()) if self.pods.synced and not self.pods.unavailable else None

    def follow_maps(self, names: Iterable[str]) -> None:
        """Watch these ConfigMaps too, up to ``MOST_MAPS``."""
        for name in names:
            if name not in self.maps and self._group is not None and len(self.maps) < MOST_MAPS:
                informer = self.maps[name] = Informer(ConfigMap, self._of_anything, name=name, timing=self._timing)
                self._group.create_task(informer.follow(self.api))

    def text(self, name: str) -> str | None:
        """Return the named configs of a ConfigMap, None if it does not exist or is not read yet."""
        informer = self.maps.get(name)
        found = next(iter(informer.items), None) if informer is not None else None
        return found.data.get("config.yaml") if found is not None else None

    # -- events

    def _of_nodes(self, keys: set[Key]) -> None:
        self._node_changed({name for _, name in keys})

    def _of_documents(self, keys: set[Key]) -> None:
        nodes = {name.removesuffix(f"-{which}") for _, name in keys for which in (document.GPUS, document.VGPUS)}
        self._node_changed(nodes)

    def _of_pods(self, keys: set[Key]) -> None:
        touched = set()
        for namespace, name in keys:
            pod, previous = self.pods.get(name, namespace), self._node_of.pop(name, "")
            if previous:
                self._pods_of.get(previous, {}).pop(name, None)
                touched.add(previous)
            if pod is not None and pod.spec.node_name:
                self._node_of[name] = pod.spec.node_name
                self._pods_of.setdefault(pod.spec.node_name, {})[name] = pod
                touched.add(pod.spec.node_name)
        self._node_changed(touched)

    def _of_anything(self, _: set[Key]) -> None:
        self._changed()
