"""KubeVirt's kinds, as far as GPUs are concerned. Everything else in them is neither read nor written.

Source: KubeVirt API reference (kubevirt.io/v1). What is written goes through patches of the raw objects.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from aliquot.kubernetes.client.object_base import KubeObject, Part, ResourceType

PERMITTED_ANNOTATION = "aliquot.dev/permitted"
"""On the KubeVirt object: the resources whose entries are ours, as a JSON list."""
LAUNCHER_CONTAINER = "compute"
"""The container of a launcher pod that the machine runs in."""
LAUNCHER_COMMAND = ("env",)
"""What to run there. Every image that has virt-launcher has it; ``kubevirt.launcher_pod`` tells values with line breaks
apart.
"""


class Toggle(Part, frozen=True):
    """``enabled`` None: not said, which KubeVirt reads as yes."""

    enabled: bool | None = None


class Display(Part, frozen=True):
    enabled: bool | None = None
    ram_fb: Toggle | None = msgspec.field(name="ramFB", default=None)


class VgpuOptions(Part, frozen=True):
    display: Display | None = None


class DeviceRequest(Part, frozen=True):
    """One entry of ``gpus`` or ``hostDevices``: a name of the user's, and the resource that it stands for.
    ``claim_name`` is set where the device comes from DRA.
    """

    name: str = ""
    device_name: str = ""
    claim_name: str = ""
    tag: str = ""
    options: VgpuOptions | None = msgspec.field(name="virtualGPUOptions", default=None)


class Devices(Part, frozen=True):
    gpus: tuple[DeviceRequest, ...] | None = ()
    host_devices: tuple[DeviceRequest, ...] | None = ()

    @property
    def all(self) -> tuple[DeviceRequest, ...]:
        return (*(self.gpus or ()), *(self.host_devices or ()))


class Domain(Part, frozen=True):
    devices: Devices = Devices()


class InstanceSpec(Part, frozen=True):
    domain: Domain = Domain()
    node_selector: dict[str, str] = msgspec.field(default_factory=dict)


class Template(Part, frozen=True):
    spec: InstanceSpec = InstanceSpec()


class InstanceType(Part, frozen=True):
    name: str = ""


class VirtualMachineSpec(Part, frozen=True):
    """``running`` and ``run_strategy`` exclude each other. ``instancetype`` may add devices when the machine starts."""

    running: bool | None = None
    run_strategy: str | None = None
    instancetype: InstanceType | None = None
    template: Template = Template()


class VirtualMachineStatus(Part, frozen=True):
    printable_status: str = ""
    created: bool = False


class VirtualMachine(KubeObject, frozen=True):
    TYPE: ClassVar[ResourceType] = ResourceType("kubevirt.io", "v1", "virtualmachines", "VirtualMachine")

    spec: VirtualMachineSpec = VirtualMachineSpec()
    status: VirtualMachineStatus = VirtualMachineStatus()

    @property
    def devices(self) -> Devices:
        return self.spec.template.spec.domain.devices

    @property
    def wanted(self) -> bool:
        """Whether it is to run, now or again: it then counts against capacity whether or not it has started."""
        if self.spec.run_strategy is not None:
            return self.spec.run_strategy in ("Always", "RerunOnFailure", "Once") or (
                self.spec.run_strategy == "Manual" and self.status.created
            )
        return bool(self.spec.running)

    def wanted_after(self, phase: str) -> bool:
        """The same where an instance of it ended in this phase and is still there: not every one is started again."""
        if self.spec.run_strategy in ("Once", "Manual"):
            return False
        return self.wanted and (self.spec.run_strategy != "RerunOnFailure" or phase == "Failed")


class MigrationState(Part, frozen=True):
    """The last live migration. ``target_node`` is empty until its launcher has a node."""

    target_node: str = ""
    completed: bool = False
    failed: bool = False


class InstanceStatus(Part, frozen=True):
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
    def devices(self) -> Devices:
        return self.spec.domain.devices

    @property
    def over(self) -> bool:
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def target(self) -> str:
        """The node that it is moving to; empty while it is not moving."""
        state = self.status.migration_state
        moving = state is not None and not (state.completed or state.failed)
        return state.target_node if state is not None and moving else ""


class PciHostDevice(Part, frozen=True):
    """``pci_vendor_selector``: ``10de:26b9``."""

    pci_vendor_selector: str = ""
    resource_name: str = ""
    external_resource_provider: bool = False


class MediatedHostDevice(Part, frozen=True):
    """``mdev_name_selector``: the vGPU type's name (``NVIDIA A2-4A``)."""

    mdev_name_selector: str = ""
    resource_name: str = ""
    external_resource_provider: bool = False


class PermittedHostDevices(Part, frozen=True):
    pci_host_devices: tuple[PciHostDevice, ...] | None = ()
    mediated_devices: tuple[MediatedHostDevice, ...] | None = ()


class KubeVirtConfiguration(Part, frozen=True):
    permitted_host_devices: PermittedHostDevices | None = None


class KubeVirtSpec(Part, frozen=True):
    configuration: KubeVirtConfiguration = KubeVirtConfiguration()


class KubeVirt(KubeObject, frozen=True):
    """KubeVirt's own settings; one per cluster."""

    TYPE: ClassVar[ResourceType] = ResourceType("kubevirt.io", "v1", "kubevirts", "KubeVirt")

    spec: KubeVirtSpec = KubeVirtSpec()
