"""What admission is judged by: the objects of all nodes, and the virtual machines, at one moment, frozen."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Generic, TypeVar

import msgspec

from aliquot.kubernetes.client.admission_review import GARBAGE_COLLECTOR, AdmissionRequest
from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType
from aliquot.kubernetes.client.objects import Node
from aliquot.kubernetes.kinds import harvester_names as names
from aliquot.kubernetes.kinds.harvester import (
    GROUP,
    VERSION,
    MigConfiguration,
    PCIDevice,
    PCIDeviceClaim,
    SRIOVGPUDevice,
    VGPUDevice,
)
from aliquot.kubernetes.kinds.kubevirt import VirtualMachine, VirtualMachineInstance

Key = tuple[str, str]
"""Namespace and name."""


class USBDeviceClaimStatus(ApiStruct, frozen=True):
    """``pci_address`` is that of the USB controller behind which the claimed device is."""

    node_name: str = ""
    pci_address: str = ""


class USBDeviceClaim(KubeObject, frozen=True):
    """The wish that a USB device be handed out. Read alone: USB is not ours."""

    TYPE: ClassVar[ResourceType] = ResourceType(GROUP, VERSION, "usbdeviceclaims", "USBDeviceClaim", namespaced=False)

    status: USBDeviceClaimStatus = USBDeviceClaimStatus()


class USBDeviceStatus(ApiStruct, frozen=True):
    node_name: str = ""
    resource_name: str = ""


class USBDevice(KubeObject, frozen=True):
    """A USB device of a node. Read alone."""

    TYPE: ClassVar[ResourceType] = ResourceType(GROUP, VERSION, "usbdevices", "USBDevice", namespaced=False)

    status: USBDeviceStatus = USBDeviceStatus()


class AdmissionSnapshot(msgspec.Struct, frozen=True):
    """Objects by name, machines by namespace and name. ``accounts`` are the user names of the agents and
    controllers that keep these objects true: what they write is not judged.
    """

    gpus: Mapping[str, SRIOVGPUDevice] = {}
    vgpus: Mapping[str, VGPUDevice] = {}
    migs: Mapping[str, MigConfiguration] = {}
    functions: Mapping[str, PCIDevice] = {}
    claims: Mapping[str, PCIDeviceClaim] = {}
    usb_claims: Mapping[str, USBDeviceClaim] = {}
    usb: Mapping[str, USBDevice] = {}
    nodes: Mapping[str, Node] = {}
    vms: Mapping[Key, VirtualMachine] = {}
    instances: Mapping[Key, VirtualMachineInstance] = {}
    accounts: frozenset[str] = frozenset()

    def vgpus_of(self, gpu: str) -> Iterator[VGPUDevice]:
        """The VGPUDevices of a GPU, by the name that it has in every kind."""
        for each in self.vgpus.values():
            if parent_gpu_name(each) == gpu:
                yield each

    def enabled_vgpus(self, gpu: str) -> tuple[str, ...]:
        return tuple(sorted(each.name for each in self.vgpus_of(gpu) if each.spec.enabled))

    def trusts(self, request: AdmissionRequest) -> bool:
        """Our own programs, and the garbage collector, which deletes only what nobody owns any more."""
        collected = request.operation == "DELETE" and request.user == GARBAGE_COLLECTOR
        return collected or request.user in self.accounts


K = TypeVar("K", bound=KubeObject)


class ObjectEdit(msgspec.Struct, Generic[K], frozen=True):
    """A write to one object. ``old`` is None for a creation, ``new`` for a deletion."""

    name: str
    user: str
    old: K | None = None
    new: K | None = None


def parent_gpu_name(device: VGPUDevice) -> str:
    """The name of its GPU: from the addresses, which never change; a label is anybody's to change."""
    if device.spec.parent:
        return names.object_name(device.spec.node_name, device.spec.parent)
    return device.metadata.labels.get(names.PARENT_LABEL, "")


def shorten_list(found: tuple[str, ...], limit: int = 4) -> str:
    """``a, b, c, d and 3 more``."""
    rest = len(found) - limit
    return ", ".join(found[:limit]) + (f" and {rest} more" if rest > 0 else "")
