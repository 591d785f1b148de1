"""The kinds of ``devices.harvesterhci.io/v1beta1`` as far as GPUs need them, field by field as on the wire.

Sources: harvester/pcidevices, pkg/apis (fields, spelling included); the design documents' sample objects (what is
shown empty and what is left out). ``conditions``, ``observedGeneration``, ``appliedBoot`` and ``differences`` are ours:
unknown fields are no trouble to clients of the original.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, Condition, KubeObject, ResourceType
from aliquot.kubernetes.kinds.harvester_names import SKIP_BINDING_ANNOTATION

GROUP = "devices.harvesterhci.io"
NVIDIA = "10de"
"""The vendor whose functions we serve."""
NOT_SERVED = "NotServed"
"""The reason of a claim on a function that we do not serve."""
VERSION = "v1beta1"


def _type(plural: str, kind: str) -> ResourceType:
    return ResourceType(GROUP, VERSION, plural, kind, namespaced=False)


class HarvesterSpec(ApiStruct, frozen=True, omit_defaults=False):
    """Base of specs: every field is shown, empty ones too."""


class HarvesterStatus(ApiStruct, frozen=True):
    """Base of statuses: what is empty is left out. ``observed_generation`` is that of the spec it answers."""

    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0


class PCIDeviceSpec(HarvesterSpec, frozen=True):
    """Nothing."""


class PCIDeviceStatus(HarvesterStatus, frozen=True):
    """``vendor_id``, ``device_id``: four hex digits, lower case; ``class_id``: class and subclass (``0302``)."""

    address: str = ""
    vendor_id: str = ""
    device_id: str = ""
    class_id: str = ""
    iommu_group: str = ""
    node_name: str = ""
    resource_name: str = ""
    description: str = ""
    kernel_driver_in_use: str = ""


class PCIDevice(KubeObject, frozen=True):
    """One PCI function of a node."""

    TYPE: ClassVar[ResourceType] = _type("pcidevices", "PCIDevice")

    spec: PCIDeviceSpec = PCIDeviceSpec()
    status: PCIDeviceStatus = PCIDeviceStatus()


class PCIDeviceClaimSpec(HarvesterSpec, frozen=True):
    address: str = ""
    node_name: str = ""
    user_name: str = ""
    disable_resource_pooling: bool | msgspec.UnsetType = msgspec.UNSET


class PCIDeviceClaimStatus(HarvesterStatus, frozen=True):
    """``kernel_driver_to_unbind`` is the driver that the function had before, which it gets back."""

    kernel_driver_to_unbind: str = ""
    passthrough_enabled: bool = False


class PCIDeviceClaim(KubeObject, frozen=True):
    """The wish that a function be handed out to virtual machines; of the same name as its PCIDevice."""

    TYPE: ClassVar[ResourceType] = _type("pcideviceclaims", "PCIDeviceClaim")

    spec: PCIDeviceClaimSpec = PCIDeviceClaimSpec()
    status: PCIDeviceClaimStatus = PCIDeviceClaimStatus()


class SRIOVGPUDeviceSpec(HarvesterSpec, frozen=True):
    """``address`` is the PCI address of the physical function."""

    address: str = ""
    node_name: str = ""
    enabled: bool = False


class SRIOVGPUDeviceStatus(HarvesterStatus, frozen=True):
    """``vf_addresses`` in the lexical order of ``virtfn*``; ``vgpu_devices`` are object names in the same order."""

    vf_addresses: tuple[str, ...] = ()
    vgpu_devices: tuple[str, ...] = msgspec.field(name="vGPUDevices", default=())


class SRIOVGPUDevice(KubeObject, frozen=True):
    """One GPU that can have virtual functions, and whether it should have them."""

    TYPE: ClassVar[ResourceType] = _type("sriovgpudevices", "SRIOVGPUDevice")

    spec: SRIOVGPUDeviceSpec = SRIOVGPUDeviceSpec()
    status: SRIOVGPUDeviceStatus = SRIOVGPUDeviceStatus()


class VGPUDeviceSpec(HarvesterSpec, frozen=True):
    """``type_name`` is a vGPU type's full name (``NVIDIA A2-4Q``)."""

    address: str = ""
    enabled: bool = False
    node_name: str = ""
    parent: str = msgspec.field(name="parentGPUDeviceAddress", default="")
    type_name: str = msgspec.field(name="vGPUTypeName", default="")


class VGPUDeviceStatus(HarvesterStatus, frozen=True):
    """``state`` is ``vGPUConfigured`` or empty. ``uuid`` is the mdev's, in the vendor VFIO world the type's number, as
    the original has it. ``available_types``: name to ``nvidia-746`` (mdev) or ``1145`` (vendor VFIO).
    """

    available_types: dict[str, str] = msgspec.field(default_factory=dict)
    configured: str = msgspec.field(name="configureVGPUTypeName", default="")
    uuid: str = ""
    state: str = msgspec.field(name="vGPUStatus", default="")


class VGPUDevice(KubeObject, frozen=True):
    """One virtual function, and the vGPU that it should carry."""

    TYPE: ClassVar[ResourceType] = _type("vgpudevices", "VGPUDevice")

    spec: VGPUDeviceSpec = VGPUDeviceSpec()
    status: VGPUDeviceStatus = VGPUDeviceStatus()


class MigProfileSpec(HarvesterSpec, frozen=True):
    """``name`` as nvidia-smi prints it (``MIG 1g.5gb+me``), ``id`` the profile's number there."""

    id: int
    name: str
    requested: int = 0


class MigConfigurationSpec(HarvesterSpec, frozen=True):
    enabled: bool = False
    gpu_address: str = ""
    node_name: str = ""
    profile_spec: tuple[MigProfileSpec, ...] = ()


class MigProfileStatus(HarvesterSpec, frozen=True):
    """``available``: how many more can be made now; ``total``: on an empty GPU; ``instances``: GPU instance ids."""

    available: int
    id: int
    name: str
    total: int
    instances: tuple[str, ...] | msgspec.UnsetType = msgspec.field(name="vGPUID", default=msgspec.UNSET)


class MigConfigurationStatus(HarvesterStatus, frozen=True):
    """``state`` is ``synced``, ``out-of-sync``, ``disabled`` or empty. ``applied_boot`` is the boot in which the wish
    was last carried out: what is missing in another boot was lost by the reboot, in the same one somebody removed it.
    ``differences`` are sentences.
    """

    profile_status: tuple[MigProfileStatus, ...] = ()
    state: str = msgspec.field(name="status", default="")
    message: str = ""
    applied_boot: str = ""
    differences: tuple[str, ...] = ()


class MigConfiguration(KubeObject, frozen=True):
    """How one GPU should be cut; owned by its SRIOVGPUDevice."""

    TYPE: ClassVar[ResourceType] = _type("migconfigurations", "MigConfiguration")

    spec: MigConfigurationSpec = MigConfigurationSpec()
    status: MigConfigurationStatus = MigConfigurationStatus()


KINDS: tuple[type[KubeObject], ...] = (PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice, MigConfiguration)
ADMISSION_KINDS: tuple[type[KubeObject], ...] = (MigConfiguration, SRIOVGPUDevice, VGPUDevice, PCIDeviceClaim)
"""Kinds whose writes the admission webhook judges."""


def passes_through(claim: PCIDeviceClaim | None) -> bool:
    """Whether a claim hands its function out, and does not merely reserve it."""
    return claim is not None and claim.metadata.annotations.get(SKIP_BINDING_ANNOTATION) != "true"


def is_served(function: PCIDevice) -> bool:
    """Whether our agents serve a function: NVIDIA's, and what shares an IOMMU group with one, which has conditions."""
    return function.status.vendor_id == NVIDIA or bool(function.status.conditions)
