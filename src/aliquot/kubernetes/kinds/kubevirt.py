"""KubeVirt's kinds, as far as GPUs are concerned. Everything else in them is neither read nor written.

Source: KubeVirt API reference (kubevirt.io/v1). What is written goes through patches of the raw objects.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from aliquot.kubernetes.client.object_base import ApiStruct, KubeObject, ResourceType

PERMITTED_ANNOTATION = "aliquot.dev/permitted"
"""On the KubeVirt object: the resources whose entries are ours, as a JSON list."""
LAUNCHER_CONTAINER = "compute"
"""The container of a launcher pod that the machine runs in."""
LAUNCHER_COMMAND = ("env",)
"""What to run there. Every image that has virt-launcher has it; ``kubevirt.launcher_pod`` tells values with line breaks
apart.
"""


class Toggle(ApiStruct, frozen=True):
    """``enabled`` None: not said, which KubeVirt reads as yes."""

    enabled: bool | None = None


class Display(ApiStruct, frozen=True):
    enabled: bool | None = None
    ram_fb: Toggle | None = msgspec.field(name="ramFB", default=None)


class VgpuOptions(ApiStruct, frozen=True):
    display: Display | None = None


class DeviceRequest(ApiStruct, frozen=True):
    """One entry of ``gpus`` or ``hostDevices``: a name of the user's, and the resource that it stands for.
    ``claim_name`` is set where the device comes from DRA.
    """

    name: str = ""
    device_name: str = ""
    claim_name: str = ""
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


class InstanceSpec(ApiStruct, frozen=True):
    domain: VmDomain = VmDomain()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)


class VmTemplate(ApiStruct, frozen=True):
    spec: InstanceSpec = InstanceSpec()


class InstanceType(ApiStruct, frozen=True):
    name: str = ""


class VirtualMachineSpec(ApiStruct, frozen=True):
    """``running`` and ``run_strategy`` exclude each other. ``instancetype`` may add devices when the machine starts."""

    running: bool | None = None
    run_strategy: str | None = None
    instancetype: InstanceType | None = None
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
        """Whether it is to run, now or again: it then counts against capacity whether or not it has started."""
        if self.spec.run_strategy is not None:
            return self.spec.run_strategy in ("Always", "RerunOnFailure", "Once") or (
                self.spec.run_strategy == "Manual" and self.status.created
            )
        return bool(self.spec.running)

    def should_run_after(self, phase: str) -> bool:
        """The same where an instance of it ended in this phase and is still there: not every one is started again."""
        if self.spec.run_strategy in ("Once", "Manual"):
            return False
        return self.should_run and (self.spec.run_strategy != "RerunOnFailure" or phase == "Failed")


class MigrationState(ApiStruct, frozen=True):
    """The last live migration. ``target_node`` is empty until its launcher has a node."""

    target_node: str = ""
    completed: bool = False
    failed: bool = False


class InstanceStatus(ApiStruct, frozen=True):
    """``phase``: Pending, Scheduling, Scheduled, Running, Succeeded, Failed."""

    phase: str = ""
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
        """The node that it is moving to; empty while it is not moving."""
        state = self.status.migration_state
        moving = state is not None and not (state.completed or state.failed)
        return state.target_node if state is not None and moving else ""


class PciHostDevice(ApiStruct, frozen=True):
    """``pci_vendor_selector``: ``10de:26b9``."""

    pci_vendor_selector: str = ""
    resource_name: str = ""
    external_resource_provider: bool = False


class MediatedHostDevice(ApiStruct, frozen=True):
    """``mdev_name_selector``: the vGPU type's name (``NVIDIA A2-4A``)."""

    mdev_name_selector: str = ""
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
    """KubeVirt's own settings; one per cluster."""

    TYPE: ClassVar[ResourceType] = ResourceType("kubevirt.io", "v1", "kubevirts", "KubeVirt")

    spec: KubeVirtSpec = KubeVirtSpec()
