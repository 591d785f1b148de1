"""The state that reviews read: the objects of all nodes and the VMs, at one moment, frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

import msgspec

from aliquot.kubernetes.client.admission_review import GARBAGE_COLLECTOR, AdmissionRequest
from aliquot.kubernetes.client.object_base import KubeObject
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.claim_status import ClaimObject
from aliquot.kubernetes.kinds.harvester import (
    MigConfiguration,
    PCIDevice,
    PCIDeviceClaim,
    SRIOVGPUDevice,
    VGPUDevice,
)
from aliquot.kubernetes.kinds.harvester_peripherals import SRIOVNetworkDevice, USBDevice, USBDeviceClaim
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance

Key = tuple[str, str]
"""Namespace and name."""


class AdmissionSnapshot(msgspec.Struct, frozen=True):
    """Objects by name; VMs and ResourceClaims by namespace and name."""

    gpus: Mapping[str, SRIOVGPUDevice] = {}
    vgpus: Mapping[str, VGPUDevice] = {}
    migs: Mapping[str, MigConfiguration] = {}
    functions: Mapping[str, PCIDevice] = {}
    claims: Mapping[str, PCIDeviceClaim] = {}
    usb_claims: Mapping[str, USBDeviceClaim] = {}
    usb: Mapping[str, USBDevice] = {}
    network: Mapping[str, SRIOVNetworkDevice] = {}
    nodes: Mapping[str, Node] = {}
    vms: Mapping[Key, VirtualMachine] = {}
    instances: Mapping[Key, VirtualMachineInstance] = {}
    resource_claims: Mapping[Key, ClaimObject] = {}
    """Empty where the cluster does not serve them."""
    accounts: frozenset[str] = frozenset()
    """The user names of the agents and controllers that maintain these objects. Their writes are not reviewed."""

    def vgpus_of(self, gpu: str) -> Iterator[VGPUDevice]:
        """Yield the VGPUDevices of a GPU, by the GPU's object name."""
        for each in self.vgpus.values():
            if parent_gpu_name(each) == gpu:
                yield each

    def enabled_vgpus(self, gpu: str) -> tuple[str, ...]:
        return tuple(sorted(each.name for each in self.vgpus_of(gpu) if each.spec.enabled))

    def trusts(self, request: AdmissionRequest) -> bool:
        """Report whether the writer is one of our programs, or the garbage collector, which deletes only ownerless
        objects.
        """
        collected = request.operation == "DELETE" and request.user == GARBAGE_COLLECTOR
        return collected or request.user in self.accounts


K = TypeVar("K", bound=KubeObject)


class ObjectEdit(msgspec.Struct, Generic[K], frozen=True):
    """A write of an object. ``old`` is None for a creation, ``new`` for a deletion."""

    name: str
    user: str
    old: K | None = None
    new: K | None = None


def parent_gpu_name(device: VGPUDevice) -> str:
    """Return the name of the vGPU's GPU, from the addresses: they never change, but any user can change a label."""
    if device.spec.parent:
        return names.object_name(device.spec.node_name, device.spec.parent)
    return device.metadata.labels.get(names.PARENT_LABEL, "")


def shorten_list(found: tuple[str, ...], limit: int = 4) -> str:
    """Join names in the form ``a, b, c, d and 3 more``."""
    rest = len(found) - limit
    return ", ".join(found[:limit]) + (f" and {rest} more" if rest > 0 else "")
