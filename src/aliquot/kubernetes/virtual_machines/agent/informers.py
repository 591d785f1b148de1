"""Informers for the devices agent's node, its objects and its pods.

Kinds with the node's name as a label are watched by that label, to keep the load on the API server low. Harvester sets
no such label on claims and MigConfigurations: all are read, and those of other nodes are dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aliquot.foundation.logfmt import agent_log
from aliquot.kubernetes.client.client import ALL_NAMESPACES, Api
from aliquot.kubernetes.client.informer import Informer, InformerGroup, Key
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.client.objects import Node, Pod
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.harvester_peripherals import SRIOVNetworkDevice, USBDevice, USBDeviceClaim
from aliquot.kubernetes.node_agent.own_node import OwnNode
from aliquot.kubernetes.virtual_machines.harvester.foreign_nodes import DEVICES_ANNOTATION
from aliquot.kubernetes.virtual_machines.harvester.node_view import Objects

_RIGHTS = (
    "--all-devices needs rights of its own: kubectl apply -f deploy/kubernetes-machines/optional/all-devices.yaml, or "
    "devices.allDevices=true in the chart"
)
_LONGEST_LABEL = 63

AnyInformer = Informer[Any]
_NamesNode = SRIOVGPUDevice | VGPUDevice | MigConfiguration | PCIDeviceClaim | SRIOVNetworkDevice | Pod


class NodeDeviceInformers(InformerGroup):
    """The informers of a node. ``wake`` is called when an object changed. The owner of ``nodes`` runs it.

    The kinds of USB devices and network ports are watched only with ``all_devices``.
    """

    def __init__(self, api: Api, nodes: OwnNode, wake: Callable[[], None], *, all_devices: bool = False) -> None:
        node = nodes.name

        def changed(_: set[Key]) -> None:
            wake()

        def is_named(item: KubeObject) -> bool:
            return item.name.startswith(f"{node}-")

        def is_own(item: _NamesNode) -> bool:
            return item.spec.node_name == node

        self.api = api
        self.name = node
        # A name longer than a label value allows no selector: all objects are read.
        labels = {names.NODE_LABEL: node} if len(node) <= _LONGEST_LABEL else None
        log = agent_log
        self.gpus = Informer(SRIOVGPUDevice, changed, labels=labels, is_own=is_own, log=log)
        self.vgpus = Informer(VGPUDevice, changed, labels=labels, is_own=is_own, log=log)
        self.migs = Informer(MigConfiguration, changed, is_own=is_own, log=log)
        self.functions = Informer(PCIDevice, changed, labels=labels, is_own=self._is_own_function, log=log)
        self.claims = Informer(PCIDeviceClaim, changed, is_own=is_own, log=log)
        self.usb = Informer(USBDevice, changed, labels=labels, is_own=is_named, log=log, source=_RIGHTS)
        self.usb_claims = Informer(USBDeviceClaim, changed, is_own=is_named, log=log, source=_RIGHTS)
        self.network = Informer(SRIOVNetworkDevice, changed, labels=labels, is_own=is_own, log=log, source=_RIGHTS)
        self.nodes = nodes
        nodes.listen(changed, _relevant_node_fields)
        self.pods = Informer(
            Pod,
            changed,
            namespace=ALL_NAMESPACES,
            fields={"spec.nodeName": node},
            is_own=is_own,
            relevant_part=_relevant_pod_fields,
            log=log,
        )
        gpu_informers = (self.gpus, self.vgpus, self.migs, self.functions, self.claims)
        more = (self.usb, self.usb_claims, self.network) if all_devices else ()
        self.device_informers: tuple[AnyInformer, ...] = (*gpu_informers, *more)
        super().__init__(*self.device_informers, self.pods, shared=(nodes,))

    def _is_own_function(self, item: PCIDevice) -> bool:
        """Report whether a PCIDevice is this node's. Its status names the node, but is empty just after its
        creation.
        """
        return (item.status.node_name or item.metadata.labels.get(names.NODE_LABEL)) == self.name

    def informer(self, kind: str) -> AnyInformer:
        """Return the informer of a kind by name. Raise KeyError for a kind that the agent does not watch."""
        return {informer.kind.TYPE.kind: informer for informer in self.device_informers}[kind]

    @property
    def missing_kinds(self) -> tuple[str, ...]:
        """The kinds that the cluster does not have."""
        return tuple(informer.kind.TYPE.kind for informer in self.device_informers if informer.absent)

    @property
    def node(self) -> Node | None:
        return self.nodes.node

    def objects(self) -> Objects:
        """Return the current objects of this node."""
        return Objects(
            gpus=self.gpus.by_name,
            vgpus=self.vgpus.by_name,
            migs=self.migs.by_name,
            functions=self.functions.by_name,
            claims=self.claims.by_name,
            usb=self.usb.by_name,
            usb_claims=self.usb_claims.by_name,
            network=self.network.by_name,
        )


def _relevant_node_fields(node: Node) -> object:
    """Return the fields of a node that matter: a heartbeat or the other agent's progress does not cause a round."""
    meta = node.metadata
    return meta.uid, meta.labels.get(names.DRIVER_NEEDED_LABEL), meta.annotations.get(DEVICES_ANNOTATION)


def _relevant_pod_fields(pod: Pod) -> object:
    """Return the fields of a pod that matter: its owners, and whether it is ready, terminating or finished."""
    ready = [c.status for c in pod.status.conditions if c.type == "Ready"]
    owners = [(owner.kind, owner.name) for owner in pod.metadata.owner_references]
    parts = [(part.ready, part.container_id) for part in pod.status.container_statuses]
    meta = pod.metadata
    return meta.uid, meta.labels, pod.status.phase, ready, parts, meta.deletion_timestamp, owners
