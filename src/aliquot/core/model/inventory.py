"""The inventory: the GPUs of one node at one moment, frozen and fingerprinted."""

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


_NVSWITCH_PRODUCTS = ("NVIDIA B200", "NVIDIA B300 SXM6 AC")
"""Boards whose NVSwitches are not PCI functions of NVIDIA's driver. They exist only on NVSwitch baseboards."""

UNKNOWN_HOLDER = "unknown"
"""The id of a holder that cannot be identified, or that may not exist."""


HolderKind = Literal["claim", "container", "job", "others", "pod", "process", "reservation", "vgpu", "vm"]


class Holder(msgspec.Struct, frozen=True):
    """A process, pod, ResourceClaim, VM, job or container that uses an instance.

    ``id`` is the pid of a process, or ``namespace/name``.
    """

    kind: Stored[HolderKind]
    id: str
    name: str = ""

    @property
    def releasable(self) -> str:
        """The word for ``aliquot docker release``: the name of a reservation, or its id without the runtime."""
        return self.name or self.id.rpartition(":")[2]

    def __str__(self) -> str:
        """Return one printable line. Users choose process names, which may contain line breaks."""
        name = "".join(c if c.isprintable() else "?" for c in self.name)
        return f"{self.kind} {self.id}" + (f" ({name})" if name else "")


class ComputeInstance(msgspec.Struct, frozen=True):
    """Compute slices of a GPU instance."""

    id: int
    profile: str
    profile_id: int
    placement: str
    uuid: str = ""
    """The UUID of the MIG device. It ends with the instance."""
    capability_minor: int = -1
    holders: tuple[Holder, ...] = ()

    @property
    def place(self) -> Placement:
        return Placement.parse(self.placement)


class GpuInstance(msgspec.Struct, frozen=True):
    """Memory slices and engines of a GPU."""

    id: int
    profile: str
    profile_id: int
    placement: str
    """``start:size`` in memory slices."""
    held: bool = False
    holders: tuple[Holder, ...] = ()
    capability_minor: int = -1
    compute_instances: tuple[ComputeInstance, ...] = ()
    mixed_size: bool | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="mixed")
    """Mixed-size mode of its vGPUs, on chips that share a GPU instance between several. Absent if unknown."""
    scheduler: str | msgspec.UnsetType = msgspec.UNSET
    """The scheduler of its vGPUs, as ``vgpu_scheduler`` writes it. Unset if it has none, or if it cannot be seen."""

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
    """A virtual function of a GPU with SR-IOV."""

    pci: str
    number: int
    """K of ``virtfnK``. Lists of functions are in this order."""
    driver: str = ""
    iommu_group: int | None = None
    holders: tuple[Holder, ...] = ()


class Vgpu(msgspec.Struct, frozen=True):
    """A vGPU that exists."""

    function: str
    """PCI address of its virtual function, or of the GPU itself if vGPUs are mdevs of the physical function."""
    type_id: int
    type: str
    uuid: str = ""
    """UUID of the mdev. Vendor VFIO has none, so it is the stable UUID that Aliquot assigned."""
    gpu_instance: int | None = None
    """Id of the GPU instance behind a MIG-backed vGPU."""
    placement: int | None = None
    """Placement id in mixed-size mode."""
    ownership_token: str = msgspec.field(default="", name="claim")
    """Token in the owner map, empty if not recorded. A destroy must present it, so that a late release cannot hit a new
    owner.
    """
    parameters: str = ""
    """The parameters of NVIDIA's vGPU plugin that differ from its defaults, as ``plugin_parameters`` writes them."""
    holders: tuple[Holder, ...] = ()
    """Processes that have its VFIO handle open."""

    @property
    def held(self) -> bool:
        return bool(self.holders)

    @property
    def key(self) -> tuple[str, str]:
        """The identity of the vGPU on its GPU."""
        return self.function, self.uuid


class GpuVirtualization(msgspec.Struct, frozen=True):
    """The virtualization state of one GPU, as the kernel reports it."""

    framework: Stored[FrameworkName] = msgspec.field(default="", name="world")
    """The vGPU framework, found by its files.

    ``mdev`` (mdevs of the physical function), ``sriov-mdev`` (one mdev per virtual function) or ``vendor-vfio`` (a type
    written to each virtual function). Empty if no vGPU driver is active, or if it would show only with virtual
    functions enabled.
    """
    driver: str = ""
    """Kernel driver of the physical function."""
    iommu_group: int | None = None
    group_members: tuple[str, ...] = ()
    group_peers: tuple[IommuGroupPeer, ...] = msgspec.field(default=(), name="strangers")
    """Those of ``group_members`` because of which VFIO refuses the GPU to a VM: not of its board, not a bridge, with an
    active driver.
    """
    total: int = 0
    """``sriov_totalvfs``; 0 without SR-IOV."""
    addresses: tuple[str, ...] = ()
    """PCI addresses that virtual functions have or will have, by number."""
    functions: tuple[VirtualFunction, ...] = ()
    mixed_size: bool | None = msgspec.field(default=None, name="mixed")
    """Mixed-size mode, None if unknown."""
    creatable: tuple[int, ...] | None = None
    """Type ids that the driver lists for a free function now, None if it has no list."""
    recorded_vgpus: tuple[Vgpu, ...] = msgspec.field(default=(), name="remembered")
    """vGPUs in the owner map that a reboot has removed."""
    was_mig: bool = False
    """MIG mode of the GPU when it was passed through."""
    scheduler: str = ""
    """The scheduler of time-sliced vGPUs, as ``vgpu_scheduler`` writes it. Empty if unknown, and in MIG mode, where GPU
    instances may have one.
    """

    @property
    def enabled(self) -> bool:
        """True if virtual functions exist."""
        return bool(self.functions)


class HostVirtualization(msgspec.Struct, frozen=True):
    """The virtualization features of a host."""

    iommu: bool = False
    """Whether the IOMMU is on."""
    vfio: bool = False
    """Whether the VFIO modules are loaded."""
    vgpu_manager: bool | None = None
    """Whether NVIDIA's vGPU host driver is installed. None if that cannot be determined."""
    sriov_manage: str = ""
    kernel: str = ""
    nvswitch: bool = False
    """Whether NVIDIA's driver has NVSwitches."""


class Mig(msgspec.Struct, frozen=True):
    """MIG mode, ``enabled`` or ``disabled``: current, and pending until the next reset."""

    capable: bool = False
    current: Stored[MigMode] = "disabled"
    pending: Stored[MigMode] = "disabled"

    @property
    def enabled(self) -> bool:
        return self.current == "enabled"


class Gpu(msgspec.Struct, frozen=True):
    """A physical GPU. Its identity is ``pci`` and ``uuid``; ``index`` is only for display."""

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
    """Clients of the whole GPU, outside any instance."""
    vgpus: tuple[Vgpu, ...] = ()
    passthrough: bool = False
    """Bound to vfio-pci, so that NVML does not see it."""
    virtual: GpuVirtualization | None = None
    """None if the kernel state was not read."""
    resettable: bool = msgspec.field(default=True, name="reset")
    slots_mirrored: bool | None = msgspec.field(default=None, name="swapped")
    """Whether the missing compute slice is in the low half, which mirrors the driver's choice of placements. None if
    unknown.
    """
    lost: bool = False

    @property
    def identity(self) -> str:
        """The UUID; the PCI address while no driver has reported one, because others bound the GPU to vfio-pci."""
        return self.uuid or self.pci

    @property
    def shares_instances(self) -> bool:
        """True if several vGPUs can share a GPU instance of this board."""
        table = vgpu.table(self.pci_device, self.subsystem)
        return table is not None and table.shares_instances

    @property
    def mixed_size(self) -> bool | None:
        """Mixed-size mode, in MIG mode that of all GPU instances. None if it is unknown, or if only some have it."""
        if not (self.mig.enabled and self.instances):
            return self.virtual.mixed_size if self.virtual else None
        modes = {i.mixed_size for i in self.instances}
        mode = modes.pop() if len(modes) == 1 else None
        return None if mode is msgspec.UNSET else mode

    def instance(self, instance_id: int) -> GpuInstance | None:
        return next((i for i in self.instances if i.id == instance_id), None)

    @property
    def involves_vms(self) -> bool:
        """True if the GPU has virtual functions or vGPUs, or is passed through."""
        return self.passthrough or bool(self.vgpus or (self.virtual is not None and self.virtual.functions))

    @property
    def uses_vendor_vfio(self) -> bool:
        """True if a vGPU is a type written to a virtual function. It has no UUID, and a VM gets the function."""
        return self.virtual is not None and self.virtual.framework == "vendor-vfio"


class Inventory(msgspec.Struct, frozen=True, dict=True):
    """The inventory of a node."""

    node: str
    gpus: tuple[Gpu, ...]
    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str = "Inventory"
    driver: str = ""
    nvml: str = ""
    tables: tuple[catalog.Family, ...] = ()
    """Tables read from the driver, because the catalog has none or differs."""
    notes: tuple[str, ...] = ()
    """Sentences about the node."""
    vgpu_tables: tuple[VgpuTable, ...] = ()
    """Tables of vGPU types read from the driver, because the catalog has none or differs."""
    host: HostVirtualization | None = None
    """None if the kernel state was not read."""

    def vgpu_table(self, gpu: Gpu) -> VgpuTable | None:
        """Return the vGPU types of a GPU, from the driver if it reports more than the catalog."""
        for table in self.vgpu_tables:
            if table.pci_device == gpu.pci_device and gpu.subsystem.startswith(table.subsystem):
                return table
        return vgpu.table(gpu.pci_device, gpu.subsystem)

    def family(self, gpu: Gpu) -> catalog.Family:
        """Return the geometry table of a MIG-capable GPU. Raises KeyError if there is none."""
        listed = next((table for table in self.tables if table.name == gpu.family), None)
        table = listed or catalog.family(gpu.family or "")
        return table if self.places_compute_instances else table.without_placed_compute

    @cached_property
    def places_compute_instances(self) -> bool:
        """True if the driver accepts a placement for a new compute instance."""
        return not lacks(self.driver, PLACED_COMPUTE_INSTANCES)

    def gpu(self, pci: str) -> Gpu:
        """Return the GPU at a PCI address. Raises KeyError if there is none."""
        for gpu in self.gpus:
            if gpu.pci == pci:
                return gpu
        raise KeyError(pci)

    def on_nvswitch(self, gpu: Gpu) -> bool:
        """Report whether a GPU is on NVSwitch. A baseboard has one GPU model, so the host's switches belong to this
        GPU.
        """
        return gpu.product in _NVSWITCH_PRODUCTS or (self.host is not None and self.host.nvswitch)

    def find_function(self, address: str) -> tuple[Gpu, int] | None:
        """Return the GPU of a virtual function, enabled or not, and the function's number.

        Returns None for an unknown address or any other text.
        """
        try:
            pci = pci_address(address)
        except ValueError:
            return None
        every = ((gpu, n, each) for gpu in self.gpus if gpu.virtual for n, each in enumerate(gpu.virtual.addresses))
        return next(((gpu, n) for gpu, n, each in every if each == pci), None)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of identity, driver, modes, instances, virtual functions and vGPUs.

        Holders change often and are left out: they are read again before each destroy.
        """
        import hashlib

        def scheduler_mark(scheduler: str) -> list[str]:
            policy = scheduler.partition(",")[0]  # the rest is known only while a VM runs
            return [policy] if policy not in ("", "best-effort") else []

        def instance(gpu_instance: GpuInstance) -> object:
            return [
                gpu_instance.id,
                gpu_instance.profile_id,
                gpu_instance.placement,
                [[c.id, c.profile_id, c.placement] for c in gpu_instance.compute_instances],
                *([True] if gpu_instance.mixed_size else []),
                *scheduler_mark(gpu_instance.scheduler or ""),
            ]

        def shares(gpu: Gpu) -> list[object]:
            if gpu.virtual is None:
                return []
            vgpus = [
                [v.function, v.type_id, v.uuid, v.gpu_instance, v.placement, v.ownership_token]
                + ([v.parameters] if v.parameters else [])
                for v in gpu.vgpus
            ]
            scheduler = scheduler_mark(gpu.virtual.scheduler)
            return [gpu.passthrough, len(gpu.virtual.functions), gpu.virtual.mixed_size, vgpus, *scheduler]

        facts = [self.driver] + [
            [g.pci, g.uuid, g.product, g.mig.current, g.mig.pending, [instance(i) for i in g.instances], *shares(g)]
            for g in self.gpus
        ]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]
