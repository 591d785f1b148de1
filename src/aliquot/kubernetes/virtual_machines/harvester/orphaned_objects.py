"""Objects of removed nodes, whose devices no agent will read again. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import MigConfiguration, PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice
from aliquot.kubernetes.kinds.harvester_peripherals import (
    USB_FINALIZER,
    SRIOVNetworkDevice,
    USBDevice,
    USBDeviceClaim,
)

_ORDER: tuple[type[KubeObject], ...] = (
    *(PCIDeviceClaim, VGPUDevice, MigConfiguration, SRIOVGPUDevice, PCIDevice),
    *(USBDeviceClaim, USBDevice, SRIOVNetworkDevice),
)
"""The order of deletion: an object goes before its owner."""
_FINALIZERS = (names.CLAIM_FINALIZER, USB_FINALIZER)


class Orphan(msgspec.Struct, frozen=True):
    """An object of a removed node."""

    kind: type[KubeObject]
    name: str
    uid: str
    version: str
    node: str
    finalizers: tuple[str, ...] | None = None
    """The finalizers that stay when ours is removed, which only the node's agent could handle; None if ours is not
    set.
    """
    deleting: bool = False
    """True if the object is being deleted already."""


def orphans(nodes: Collection[str], objects: Iterable[KubeObject]) -> tuple[Orphan, ...]:
    """Return the objects whose node is not among ``nodes``, in the order of deletion.

    An object that names no node stays.
    """
    given = tuple(objects)
    devices = {each.name: node_of(each) for each in given if isinstance(each, USBDevice)}
    # A claim that no agent has served yet does not name its node, but its device does.
    found = [
        _orphan(each, node)
        for each in given
        if (node := node_of(each) or (devices.get(each.name, "") if isinstance(each, USBDeviceClaim) else ""))
        and node not in nodes
    ]
    return tuple(sorted(found, key=lambda each: (_ORDER.index(each.kind), each.name)))


def node_of(item: KubeObject) -> str:
    """Return the node of an object's device; "" if the object names none."""
    node = ""
    if isinstance(item, PCIDevice | USBDevice | USBDeviceClaim):
        node = item.status.node_name
    elif isinstance(item, PCIDeviceClaim | SRIOVGPUDevice | VGPUDevice | MigConfiguration | SRIOVNetworkDevice):
        node = item.spec.node_name
    return node or item.metadata.labels.get(names.NODE_LABEL, "")


def _orphan(item: KubeObject, node: str) -> Orphan:
    meta = item.metadata
    rest = tuple(each for each in meta.finalizers if each not in _FINALIZERS)
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
