"""The devices that claims must have, on one state of the node. Pure."""

from __future__ import annotations

import msgspec

from aliquot.core.model.inventory import Gpu, GpuInstance
from aliquot.core.model.placement import Placement
from aliquot.core.model.vgpu_types import VgpuType
from aliquot.kubernetes.dra.agent.claim_types import AllocatedDevice
from aliquot.node.holders.prepared_claims import PASSED_THROUGH, RecordedDevice


class DeviceTarget(msgspec.Struct, frozen=True):
    """A device that a claim must have. ``profile_id`` is -1 for the whole GPU."""

    allocated: AllocatedDevice
    gpu: Gpu
    profile_id: int = -1
    profile: str = ""
    placement: Placement = Placement(0, 0)

    @property
    def whole(self) -> bool:
        return self.profile_id < 0

    @property
    def sliced(self) -> bool:
        """True for a time-sliced vGPU, which shares its GPU with others like it."""
        return False

    @property
    def vm(self) -> str:
        """The kind of a device for a VM, as a record has it; empty for containers."""
        return ""

    @property
    def place(self) -> str:
        """``start:size``; empty for a whole GPU and a time-sliced vGPU."""
        return str(self.placement) if self.placement.size else ""

    def overlaps(self, device: RecordedDevice) -> bool:
        """Report whether both need the same part of a GPU."""
        if device.gpu != self.gpu.identity:
            return False
        if device.vm not in ("", PASSED_THROUGH) and not device.placement and self.sliced:
            return device.device == self.allocated.device
        either = self.whole or self.sliced or not device.placement
        return either or bool(Placement.parse(device.placement).mask & self.placement.mask)

    def excludes(self, other: DeviceTarget) -> bool:
        """Report whether two devices of one GPU need the same part of it."""
        if self.sliced and other.sliced:
            return self.allocated.device == other.allocated.device
        either = self.whole or other.whole or self.sliced or other.sliced
        return either or bool(self.placement.mask & other.placement.mask)

    def instance_in(self, gpu: Gpu) -> GpuInstance | None:
        """Return the instance at exactly this placement."""
        wanted = self.profile_id, self.place
        return next((i for i in gpu.instances if (i.profile_id, i.placement) == wanted), None)

    def uuid_in(self, gpu: Gpu) -> str:
        """Return the UUID of the device; empty if it does not exist."""
        if self.whole:
            return "" if gpu.mig.enabled else gpu.uuid
        instance = self.instance_in(gpu)
        parts = instance.compute_instances if instance else ()
        return parts[0].uuid if len(parts) == 1 and instance and parts[0].profile == instance.profile else ""

    def __str__(self) -> str:
        return f"GPU {self.gpu.pci}" if self.whole else f"{self.profile} at {self.place} of GPU {self.gpu.pci}"


class VmTarget(DeviceTarget, frozen=True):
    """A device for a VM: the whole GPU, or a vGPU with the UUID that follows from the device's name."""

    vgpu: VgpuType | None = None
    uuid: str = ""
    """Of the vGPU."""

    @property
    def whole(self) -> bool:
        return self.vgpu is None

    @property
    def sliced(self) -> bool:
        return self.vgpu is not None and not self.vgpu.mig_backed

    @property
    def vm(self) -> str:
        return PASSED_THROUGH if self.vgpu is None else self.vgpu.short

    def uuid_in(self, gpu: Gpu) -> str:
        if self.vgpu is None:
            return gpu.identity if gpu.passthrough else ""
        return next((v.uuid for v in gpu.vgpus if (v.uuid, v.type_id) == (self.uuid, self.vgpu.id)), "")

    def place_in(self, gpu: Gpu) -> str:
        """Return the placement of the GPU instance that the vGPU has. The driver chose it among those of its profile.

        Empty for all other devices.
        """
        mine = next((v.gpu_instance for v in gpu.vgpus if v.uuid == self.uuid), None)
        instance = gpu.instance(mine) if mine is not None else None
        return instance.placement if instance is not None else ""

    def function_in(self, gpu: Gpu) -> str:
        """Return the PCI address that the VM opens; empty for an mdev."""
        if self.vgpu is None:
            return gpu.pci
        vendor = (v.function for v in gpu.vgpus if v.uuid == self.uuid and gpu.uses_vendor_vfio)
        return next(vendor, "")

    def __str__(self) -> str:
        if self.vgpu is None:
            return f"GPU {self.gpu.pci} for a VM"
        where = f" at {self.place}" if self.place else ""
        return f"vGPU {self.vgpu.short}{where} of GPU {self.gpu.pci}"
