"""The kinds of ``devices.harvesterhci.io/v1beta1``, reduced to the fields that GPUs need, as they are on the wire.

Sources: harvester/pcidevices, pkg/apis (fields and their spelling); the sample objects of the design documents (which
empty fields are shown and which are omitted). Aliquot adds ``conditions``, ``observedGeneration``, ``appliedBoot`` and
``differences``: clients of the original kinds ignore unknown fields.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import msgspec

from aliquot.core.model.stored import Stored
from aliquot.kubernetes.client.object_base import ApiStruct, Condition, KubeObject, ResourceType
from aliquot.kubernetes.kinds.harvester_names import (
    SKIP_BINDING_ANNOTATION,
    SKIP_MIG_ANNOTATION,
    MigConfigurationState,
    VgpuDeviceState,
)

GROUP = "devices.harvesterhci.io"
NVIDIA = "10de"
"""The PCI vendor id of the functions that the agents serve."""
NOT_SERVED: Final = "NotServed"
"""The condition reason of a claim on a function that the agents do not serve."""
VERSION = "v1beta1"


def _type(plural: str, kind: str) -> ResourceType:
    return ResourceType(GROUP, VERSION, plural, kind, namespaced=False)


class HarvesterSpec(ApiStruct, frozen=True, omit_defaults=False):
    """Base of specs. Every field is written, also an empty one."""


class HarvesterStatus(ApiStruct, frozen=True):
    """Base of statuses. Empty fields are omitted."""

    conditions: tuple[Condition, ...] = ()
    observed_generation: int = 0
    """The generation of the spec that this status describes."""


class PCIDeviceSpec(HarvesterSpec, frozen=True):
    """An empty spec."""


class PCIDeviceStatus(HarvesterStatus, frozen=True):
    address: str = ""
    vendor_id: str = ""
    """Four hex digits, lower case."""
    device_id: str = ""
    """Four hex digits, lower case."""
    class_id: str = ""
    """PCI class and subclass (``0302``)."""
    iommu_group: str = ""
    node_name: str = ""
    resource_name: str = ""
    description: str = ""
    kernel_driver_in_use: str = ""


class PCIDevice(KubeObject, frozen=True):
    """A PCI function of a node."""

    TYPE: ClassVar[ResourceType] = _type("pcidevices", "PCIDevice")

    spec: PCIDeviceSpec = PCIDeviceSpec()
    status: PCIDeviceStatus = PCIDeviceStatus()


class PCIDeviceClaimSpec(HarvesterSpec, frozen=True):
    address: str = ""
    node_name: str = ""
    user_name: str = ""
    disable_resource_pooling: bool | msgspec.UnsetType = msgspec.UNSET


class PCIDeviceClaimStatus(HarvesterStatus, frozen=True):
    kernel_driver_to_unbind: str = ""
    """The driver to bind again when the claim goes: the one that the function had before."""
    passthrough_enabled: bool = False


class PCIDeviceClaim(KubeObject, frozen=True):
    """A request to pass a function through to VMs. It has the name of its PCIDevice."""

    TYPE: ClassVar[ResourceType] = _type("pcideviceclaims", "PCIDeviceClaim")

    spec: PCIDeviceClaimSpec = PCIDeviceClaimSpec()
    status: PCIDeviceClaimStatus = PCIDeviceClaimStatus()


class SRIOVGPUDeviceSpec(HarvesterSpec, frozen=True):
    address: str = ""
    """The PCI address of the physical function."""
    node_name: str = ""
    enabled: bool = False


class SRIOVGPUDeviceStatus(HarvesterStatus, frozen=True):
    vf_addresses: tuple[str, ...] = ()
    """In the lexical order of ``virtfn*``."""
    vgpu_devices: tuple[str, ...] = msgspec.field(name="vGPUDevices", default=())
    """Object names, in the order of ``vf_addresses``."""


class SRIOVGPUDevice(KubeObject, frozen=True):
    """A GPU that supports virtual functions, with the request to enable them."""

    TYPE: ClassVar[ResourceType] = _type("sriovgpudevices", "SRIOVGPUDevice")

    spec: SRIOVGPUDeviceSpec = SRIOVGPUDeviceSpec()
    status: SRIOVGPUDeviceStatus = SRIOVGPUDeviceStatus()


class VGPUDeviceSpec(HarvesterSpec, frozen=True):
    address: str = ""
    enabled: bool = False
    node_name: str = ""
    parent: str = msgspec.field(name="parentGPUDeviceAddress", default="")
    type_name: str = msgspec.field(name="vGPUTypeName", default="")
    """The full name of a vGPU type (``NVIDIA A2-4Q``)."""


class VGPUDeviceStatus(HarvesterStatus, frozen=True):
    available_types: dict[str, str] = msgspec.field(default_factory=dict)
    """Name to type id: ``nvidia-746`` (mdev) or ``1145`` (vendor-specific VFIO)."""
    configured: str = msgspec.field(name="configureVGPUTypeName", default="")
    uuid: str = ""
    """The mdev's UUID. With vendor-specific VFIO, the number of the type, as in Harvester."""
    state: Stored[VgpuDeviceState | Literal[""]] = msgspec.field(name="vGPUStatus", default="")
    """``vGPUConfigured`` or empty."""


class VGPUDevice(KubeObject, frozen=True):
    """A virtual function, with the vGPU that is requested on it."""

    TYPE: ClassVar[ResourceType] = _type("vgpudevices", "VGPUDevice")

    spec: VGPUDeviceSpec = VGPUDeviceSpec()
    status: VGPUDeviceStatus = VGPUDeviceStatus()


class MigProfileSpec(HarvesterSpec, frozen=True):
    id: int
    """The profile's number in nvidia-smi."""
    name: str
    """The name that nvidia-smi prints (``MIG 1g.5gb+me``)."""
    requested: int = 0


class MigConfigurationSpec(HarvesterSpec, frozen=True):
    enabled: bool = False
    gpu_address: str = ""
    node_name: str = ""
    profile_spec: tuple[MigProfileSpec, ...] = ()


class MigProfileStatus(HarvesterSpec, frozen=True):
    available: int
    """How many more instances of the profile can be created now."""
    id: int
    name: str
    total: int
    """How many fit on an empty GPU."""
    instances: tuple[str, ...] | msgspec.UnsetType = msgspec.field(name="vGPUID", default=msgspec.UNSET)
    """GPU instance ids."""


class MigConfigurationStatus(HarvesterStatus, frozen=True):
    profile_status: tuple[MigProfileStatus, ...] = ()
    state: Stored[MigConfigurationState | Literal[""]] | msgspec.UnsetType = msgspec.field(
        name="status", default=msgspec.UNSET
    )
    """``synced``, ``out-of-sync``, ``disabled`` or empty. It is written also if empty, because Harvester's page edits
    only a configuration that has it.
    """
    message: str = ""
    applied_boot: str = ""
    """The boot id at the last apply. If the boot differs, the reboot lost what is missing; otherwise another program
    removed it.
    """
    differences: tuple[str, ...] = ()
    """The drift, as sentences."""


class MigConfiguration(KubeObject, frozen=True):
    """The MIG geometry that is requested for a GPU. Its SRIOVGPUDevice owns it."""

    TYPE: ClassVar[ResourceType] = _type("migconfigurations", "MigConfiguration")

    spec: MigConfigurationSpec = MigConfigurationSpec()
    status: MigConfigurationStatus = MigConfigurationStatus()


KINDS: tuple[type[KubeObject], ...] = (PCIDevice, PCIDeviceClaim, SRIOVGPUDevice, VGPUDevice, MigConfiguration)
ADMISSION_KINDS: tuple[type[KubeObject], ...] = (MigConfiguration, SRIOVGPUDevice, VGPUDevice, PCIDeviceClaim)
"""Kinds whose writes the admission webhook reviews."""


def passes_through(claim: PCIDeviceClaim | None) -> bool:
    """Report whether a claim passes its function through to VMs, rather than only reserving it."""
    return claim is not None and claim.metadata.annotations.get(SKIP_BINDING_ANNOTATION) != "true"


def is_served(function: PCIDevice) -> bool:
    """Report whether the agents serve a function: an NVIDIA function, or one with conditions, which only they write.
    That is an IOMMU group peer, or any function of a node whose agent serves all devices.
    """
    return function.status.vendor_id == NVIDIA or bool(function.status.conditions)


def skips_mig(gpu: KubeObject) -> bool:
    """Report whether a GPU should stay time-sliced although it supports MIG."""
    return gpu.metadata.annotations.get(SKIP_MIG_ANNOTATION) == "true"
