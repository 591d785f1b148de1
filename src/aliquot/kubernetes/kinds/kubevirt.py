"""KubeVirt's kinds, reduced to the fields that GPUs need. Aliquot neither reads nor writes the other fields.

Source: KubeVirt API reference (kubevirt.io/v1). Writes are patches of the raw objects.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType

PERMITTED_ANNOTATION = "aliquot.dev/permitted"
"""On the KubeVirt object: the resources whose entries Aliquot owns, as a JSON list."""
LAUNCHER_CONTAINER = "compute"
"""The container of a launcher pod that runs the VM."""
LAUNCHER_COMMAND = ("env",)
"""The command that prints the environment. Every image with virt-launcher has it, and ``kubevirt.launcher_pod`` copes
with line breaks in values.
"""


class Toggle(ApiStruct, frozen=True):
    enabled: bool | None = None
    """None means unset, which KubeVirt treats as true."""


class Display(ApiStruct, frozen=True):
    enabled: bool | None = None
    ram_fb: Toggle | None = msgspec.field(name="ramFB", default=None)


class VgpuOptions(ApiStruct, frozen=True):
    display: Display | None = None


class DeviceRequest(ApiStruct, frozen=True):
    """An entry of ``gpus`` or ``hostDevices``."""

    name: str = ""
    """Chosen by the user."""
    device_name: str = ""
    """The resource."""
    claim_name: str = ""
    """Set if the device comes from DRA: an entry of the VM's ``resourceClaims``."""
    request_name: str = ""
    """The claim's request that the device is allocated for."""
    tag: str = ""
    options: VgpuOptions | None = msgspec.field(name="virtualGPUOptions", default=None)


class VmDevices(ApiStruct, frozen=True):
    gpus: tuple[DeviceRequest, ...] | None = ()
    host_devices: tuple[DeviceRequest, ...] | None = ()

    @property
    def all(self) -> tuple[DeviceRequest, ...]:
        return (*(self.gpus or ()), *(self.host_devices or ()))


class VmDomain(ApiStruct, frozen=True):
    devices: VmDevices = VmDevices()


class VmClaimReference(ApiStruct, frozen=True):
    """A claim of a VM. It names a ResourceClaim, or the template of a claim for each start."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


class InstanceSpec(ApiStruct, frozen=True):
    domain: VmDomain = VmDomain()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)
    resource_claims: tuple[VmClaimReference, ...] | None = ()


class VmTemplate(ApiStruct, frozen=True):
    spec: InstanceSpec = InstanceSpec()


class InstanceType(ApiStruct, frozen=True):
    name: str = ""


class VirtualMachineSpec(ApiStruct, frozen=True):
    """The fields of a VM's spec. At most one of ``running`` and ``run_strategy`` is set."""

    running: bool | None = None
    run_strategy: str | None = None
    instancetype: InstanceType | None = None
    """It may add devices when the VM starts."""
    template: VmTemplate = VmTemplate()


class VirtualMachineStatus(ApiStruct, frozen=True):
    printable_status: str = ""
    created: bool = False


class VirtualMachine(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")

    spec: VirtualMachineSpec = VirtualMachineSpec()
    status: VirtualMachineStatus = VirtualMachineStatus()

    @property
    def devices(self) -> VmDevices:
        return self.spec.template.spec.domain.devices

    @property
    def should_run(self) -> bool:
        """True if the VM should run, now or again. It then counts against capacity whether or not it has started."""
        if self.spec.run_strategy is not None:
            return self.spec.run_strategy in ("Always", "RerunOnFailure", "Once") or (
                self.spec.run_strategy == "Manual" and self.status.created
            )
        return bool(self.spec.running)

    def should_run_after(self, phase: str) -> bool:
        """Report whether the VM should run again after its instance, which still exists, ended in this phase.

        Not every run strategy starts the VM again.
        """
        if self.spec.run_strategy in ("Once", "Manual"):
            return False
        return self.should_run and (self.spec.run_strategy != "RerunOnFailure" or phase == "Failed")


class MigrationState(ApiStruct, frozen=True):
    """The last live migration."""

    target_node: str = ""
    """Empty until the target's launcher has a node."""
    completed: bool = False
    failed: bool = False


class InstanceStatus(ApiStruct, frozen=True):
    phase: str = ""
    """Pending, Scheduling, Scheduled, Running, Succeeded or Failed."""
    node_name: str = ""
    migration_state: MigrationState | None = None


class VirtualMachineInstance(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType(
        "kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance"
    )

    spec: InstanceSpec = InstanceSpec()
    status: InstanceStatus = InstanceStatus()

    @property
    def devices(self) -> VmDevices:
        return self.spec.domain.devices

    @property
    def finished(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def migration_target(self) -> str:
        """The node that the VM migrates to; empty while it does not migrate."""
        state = self.status.migration_state
        moving = state is not None and not (state.completed or state.failed)
        return state.target_node if state is not None and moving else ""


class PciHostDevice(ApiStruct, frozen=True):
    pci_vendor_selector: str = ""
    """For example ``10de:26b9``."""
    resource_name: str = ""
    external_resource_provider: bool = False


class MediatedHostDevice(ApiStruct, frozen=True):
    mdev_name_selector: str = ""
    """The name of the vGPU type (``NVIDIA A2-4A``)."""
    resource_name: str = ""
    external_resource_provider: bool = False


class PermittedHostDevices(ApiStruct, frozen=True):
    pci_host_devices: tuple[PciHostDevice, ...] | None = ()
    mediated_devices: tuple[MediatedHostDevice, ...] | None = ()


class KubeVirtConfiguration(ApiStruct, frozen=True):
    permitted_host_devices: PermittedHostDevices | None = None


class KubeVirtSpec(ApiStruct, frozen=True):
    configuration: KubeVirtConfiguration = KubeVirtConfiguration()


class KubeVirt(KubeObject, frozen=True):
    """KubeVirt's own settings. A cluster has one such object."""

    TYPE: ClassVar[ResourceType] = ResourceType("kubevirt.io", "v1", "kubevirts", "KubeVirt")

    spec: KubeVirtSpec = KubeVirtSpec()
