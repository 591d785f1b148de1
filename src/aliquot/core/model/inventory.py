"""What is: the GPUs of one node at one moment, frozen and fingerprinted."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import msgspec

from aliquot.core.model import catalog
from aliquot.core.model import vgpu_types as vgpu
from aliquot.core.model.driver_branches import PLACED_COMPUTE_INSTANCES, lacks
from aliquot.core.model.ids import pci_address
from aliquot.core.model.placement import Placement
from aliquot.core.model.stored import Stored
from aliquot.core.model.vgpu_types import VgpuTable

API_VERSION = "aliquot/v1"
MigMode = Literal["enabled", "disabled"]
FrameworkName = Literal["", "mdev", "sriov-mdev", "vendor-vfio"]


UNKNOWN_HOLDER = "unknown"
"""The id of a holder of which nobody can say more, or whether there is one."""


class Holder(msgspec.Struct, frozen=True):
    """What is on an instance: a process, pod, VM, job or container. ``id`` is a pid for a process."""

    kind: str
    id: str
    name: str = ""

    def __str__(self) -> str:
        """On one line: whoever starts a process chooses its name, and may have put lines into it."""
        name = "".join(c if c.isprintable() else "?" for c in self.name)
        return f"{self.kind} {self.id}" + (f" ({name})" if name else "")


class ComputeInstance(msgspec.Struct, frozen=True):
    """Compute slots of a GPU instance. ``uuid`` is the MIG device's, which ends with the instance."""

    id: int
    profile: str
    profile_id: int
    placement: str
    uuid: str = ""
    capability_minor: int = -1
    holders: tuple[Holder, ...] = ()

    @property
    def place(self) -> Placement:
        return Placement.parse(self.placement)


class GpuInstance(msgspec.Struct, frozen=True):
    """Memory slices and engines cut from a GPU. ``placement`` is ``start:size`` in memory slices."""

    id: int
    profile: str
    profile_id: int
    placement: str
    held: bool = False
    holders: tuple[Holder, ...] = ()
    capability_minor: int = -1
    compute_instances: tuple[ComputeInstance, ...] = ()

    @property
    def place(self) -> Placement:
        return Placement.parse(self.placement)


class IommuGroupPeer(msgspec.Struct, frozen=True):
    """A device that shares a GPU's IOMMU group, and its driver."""

    pci: str
    driver: str

    def __str__(self) -> str:
        return f"{self.pci} (driver {self.driver})"


class VirtualFunction(msgspec.Struct, frozen=True):
    """A virtual function of a GPU in SR-IOV. ``number`` is K of ``virtfnK``; functions are kept in that order."""

    pci: str
    number: int
    driver: str = ""
    iommu_group: int | None = None
    holders: tuple[Holder, ...] = ()


class Vgpu(msgspec.Struct, frozen=True):
    """A vGPU that exists. ``function`` is the PCI address of the virtual function that carries it, or of the GPU itself
    where vGPUs are mdevs of the physical function. ``uuid`` is the mdev's; with vendor VFIO, which has none, the stable
    one that we gave it. ``gpu_instance`` is the id of the GPU instance behind a MIG-backed one, ``placement`` the id of
    its place in mixed-size mode. ``ownership_token`` is the owner map's token, empty for one that is not recorded;
    whoever destroys must present it, so that a late release cannot hit a new owner. ``holders`` have its VFIO handle
    open.
    """

    function: str
    type_id: int
    type: str
    uuid: str = ""
    gpu_instance: int | None = None
    placement: int | None = None
    ownership_token: str = msgspec.field(default="", name="claim")
    holders: tuple[Holder, ...] = ()

    @property
    def held(self) -> bool:
        return bool(self.holders)

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from the others of its GPU."""
        return self.function, self.uuid


class GpuVirtualization(msgspec.Struct, frozen=True):
    """What the kernel says about sharing one GPU with virtual machines.

    ``framework``: ``mdev`` (mdevs of the physical function), ``sriov-mdev`` (one mdev per virtual function),
    ``vendor-vfio`` (a type written to each virtual function), empty where no vGPU driver is at work. It is found by
    files, and where virtual functions are off the world shows only after they are on: then it is empty too. ``driver``
    is the physical function's kernel driver. ``group_peers`` are those of ``group_members`` that VFIO does not let a
    virtual machine have the GPU beside: not of its board, no bridges, with a driver at work. ``total`` is
    sriov_totalvfs (0: no SR-IOV); ``addresses`` are the PCI addresses that virtual functions have or will have, by
    number. ``mixed_size`` is mixed-size mode, None where nobody can tell. ``creatable`` are the type ids that the
    driver lists for a free function now, None where it has no list. ``recorded_vgpus`` is what the owner map knows of
    vGPUs that a reboot has taken away. ``was_mig`` is the MIG mode that the GPU had when it was passed through.
    """

    framework: Stored[FrameworkName] = msgspec.field(default="", name="world")
    driver: str = ""
    iommu_group: int | None = None
    group_members: tuple[str, ...] = ()
    group_peers: tuple[IommuGroupPeer, ...] = msgspec.field(default=(), name="strangers")
    total: int = 0
    addresses: tuple[str, ...] = ()
    functions: tuple[VirtualFunction, ...] = ()
    mixed_size: bool | None = msgspec.field(default=None, name="mixed")
    creatable: tuple[int, ...] | None = None
    recorded_vgpus: tuple[Vgpu, ...] = msgspec.field(default=(), name="remembered")
    was_mig: bool = False

    @property
    def enabled(self) -> bool:
        """Whether virtual functions exist."""
        return bool(self.functions)


class HostVirtualization(msgspec.Struct, frozen=True):
    """What the machine has for virtual machines: the IOMMU on, the VFIO modules, NVIDIA's vGPU host driver (None where
    its presence cannot be told), its ``sriov-manage``, and whether NVIDIA's driver has NVSwitches.
    """

    iommu: bool = False
    vfio: bool = False
    vgpu_manager: bool | None = None
    sriov_manage: str = ""
    kernel: str = ""
    nvswitch: bool = False


class Mig(msgspec.Struct, frozen=True):
    """MIG mode: ``enabled`` or ``disabled``, now and after the next reset."""

    capable: bool = False
    current: Stored[MigMode] = "disabled"
    pending: Stored[MigMode] = "disabled"

    @property
    def enabled(self) -> bool:
        return self.current == "enabled"


class Gpu(msgspec.Struct, frozen=True):
    """One physical GPU. ``index`` is for showing only; identity is ``pci`` and ``uuid``. ``holders`` are clients of the
    whole GPU, outside any instance. ``slots_mirrored`` says that the board's missing compute slice lies in the low
    half, so that the driver's own choice of place is mirrored (None: not known). ``passthrough``: bound to vfio-pci, so
    that NVML does not see it. ``virtual`` is None where the kernel was not asked.
    """

    pci: str
    uuid: str
    index: int
    product: str
    pci_device: str = ""
    subsystem: str = ""
    minor: int = -1
    family: str | None = None
    mig: Mig = Mig()
    instances: tuple[GpuInstance, ...] = ()
    holders: tuple[Holder, ...] = ()
    vgpus: tuple[Vgpu, ...] = ()
    passthrough: bool = False
    virtual: GpuVirtualization | None = None
    resettable: bool = msgspec.field(default=True, name="reset")
    slots_mirrored: bool | None = msgspec.field(default=None, name="swapped")
    lost: bool = False

    def instance(self, instance_id: int) -> GpuInstance | None:
        return next((i for i in self.instances if i.id == instance_id), None)

    @property
    def uses_vendor_vfio(self) -> bool:
        """Whether a vGPU is a type that is written to a virtual function. It has no UUID; a VM gets the function."""
        return self.virtual is not None and self.virtual.framework == "vendor-vfio"


class Inventory(msgspec.Struct, frozen=True, dict=True):
    """A node. ``tables`` (and ``vgpu_tables``) carry the tables that were read from the driver because the catalog has
    none, or other numbers; ``host`` is None where the kernel was not asked; ``notes`` are sentences about the machine.
    """

    node: str
    gpus: tuple[Gpu, ...]
    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str = "Inventory"
    driver: str = ""
    nvml: str = ""
    tables: tuple[catalog.Family, ...] = ()
    notes: tuple[str, ...] = ()
    vgpu_tables: tuple[VgpuTable, ...] = ()
    host: HostVirtualization | None = None

    def vgpu_table(self, gpu: Gpu) -> VgpuTable | None:
        """The vGPU types of a GPU: what was learnt from the driver where that says more than the catalog."""
        for table in self.vgpu_tables:
            if table.pci_device == gpu.pci_device and gpu.subsystem.startswith(table.subsystem):
                return table
        return vgpu.table(gpu.pci_device, gpu.subsystem)

    def family(self, gpu: Gpu) -> catalog.Family:
        """The geometry table that holds for a MIG-capable GPU. Raises KeyError where there is none."""
        listed = next((table for table in self.tables if table.name == gpu.family), None)
        table = listed or catalog.family(gpu.family or "")
        return table if self.places_compute_instances else table.without_placed_compute

    @cached_property
    def places_compute_instances(self) -> bool:
        """Whether the driver takes a placement for a new compute instance."""
        return not lacks(self.driver, PLACED_COMPUTE_INSTANCES)

    def gpu(self, pci: str) -> Gpu:
        """The GPU at a PCI address. Raises KeyError."""
        for gpu in self.gpus:
            if gpu.pci == pci:
                return gpu
        raise KeyError(pci)

    def find_function(self, address: str) -> tuple[Gpu, int] | None:
        """The GPU that has a virtual function of that PCI address, on or off, and its number; None for other words."""
        try:
            pci = pci_address(address)
        except ValueError:
            return None
        every = ((gpu, n, each) for gpu in self.gpus if gpu.virtual for n, each in enumerate(gpu.virtual.addresses))
        return next(((gpu, n) for gpu, n, each in every if each == pci), None)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of identity, driver, modes, instances, virtual functions and vGPUs. Holders come and go and
        are left out: they are read again before each destroy.
        """
        import hashlib

        def instance(gpu_instance: GpuInstance) -> object:
            return [
                gpu_instance.id,
                gpu_instance.profile_id,
                gpu_instance.placement,
                [[c.id, c.profile_id, c.placement] for c in gpu_instance.compute_instances],
            ]

        def shares(gpu: Gpu) -> list[object]:
            if gpu.virtual is None:
                return []
            vgpus = [[v.function, v.type_id, v.uuid, v.gpu_instance, v.placement, v.ownership_token] for v in gpu.vgpus]
            return [gpu.passthrough, len(gpu.virtual.functions), gpu.virtual.mixed_size, vgpus]

        facts = [self.driver] + [
            [g.pci, g.uuid, g.product, g.mig.current, g.mig.pending, [instance(i) for i in g.instances], *shares(g)]
            for g in self.gpus
        ]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]
