"""Objects of nodes that are gone: whose device nobody will ever look at again. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice

_ORDER: tuple[type[KubeObject], ...] = (PCIDeviceClaim, VGPUDevice, MigConfiguration, SRIOVGPUDevice, PCIDevice)
"""What belongs to another goes before it."""


class Orphan(msgspec.Struct, frozen=True):
    """``finalizers`` are those that stay when ours, which only the node's own agent could honour, is taken away; None
    where ours is not there. ``deleting``: somebody deleted it already.
    """

    kind: type[KubeObject]
    name: str
    uid: str
    version: str
    node: str
    finalizers: tuple[str, ...] | None = None
    deleting: bool = False


def orphans(nodes: Collection[str], objects: Iterable[KubeObject]) -> tuple[Orphan, ...]:
    """Those whose node is not among ``nodes``, in the order in which they should go. An object that names no node is
    nobody's, and stays.
    """
    found = [_orphan(each, node) for each in objects if (node := node_of(each)) and node not in nodes]
    return tuple(sorted(found, key=lambda each: (_ORDER.index(each.kind), each.name)))


def node_of(item: KubeObject) -> str:
    """The node that an object's device is in; empty where it does not say."""
    node = ""
    if isinstance(item, PCIDevice):
        node = item.status.node_name
    elif isinstance(item, PCIDeviceClaim | SRIOVGPUDevice | VGPUDevice | MigConfiguration):
        node = item.spec.node_name
    return node or item.metadata.labels.get(names.NODE_LABEL, "")


def _orphan(item: KubeObject, node: str) -> Orphan:
    meta = item.metadata
    rest = tuple(each for each in meta.finalizers if each != names.CLAIM_FINALIZER)
    ours = len(rest) != len(meta.finalizers)
    return Orphan(
        type(item),
        meta.name,
        meta.uid,
        meta.resource_version,
        node,
        rest if ours else None,
        meta.deletion_timestamp is not None,
    )
