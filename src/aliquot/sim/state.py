"""The state of a simulated node: mutable records, written to disk after every step."""

from __future__ import annotations

from typing import Literal

import msgspec

from aliquot.core.model.stored import Stored

DEFAULT_DRIVER = "580.65.06"

WHOLE = -1
"""Stands for "no GPU instance" in a process record and in an address."""


class SchedulerState(msgspec.Struct, frozen=True):
    """The scheduler of time-sliced vGPUs, in NVML's numbers. ``strict`` is 1 if strict round robin is off, 2 if on."""

    policy: int = 1
    strict: int = 2
    average: int = 33
    time_slice: int = 2_083_333
    """In nanoseconds: with strict round robin, the inverse of the frequency."""


class ComputeState(msgspec.Struct):
    """A compute instance. ``start`` and ``size`` count compute slots of its GPU instance."""

    id: int
    profile: int
    start: int
    size: int


class InstanceState(msgspec.Struct):
    """A GPU instance. ``start`` and ``size`` are the displayed placement; the id encodes the internal one."""

    id: int
    profile: int
    start: int
    size: int
    compute: list[ComputeState] = []
    mixed: bool = False
    """Mixed-size mode of the instance, on chips that share one between vGPUs."""
    scheduler: SchedulerState = SchedulerState()
    """The scheduler of its vGPUs, on the same chips."""


class ProcessState(msgspec.Struct):
    """A simulated process on a compute instance, or on the whole GPU (``gi`` and ``ci`` are WHOLE)."""

    pid: int
    name: str
    gi: int = WHOLE
    ci: int = WHOLE
    memory_mib: int = 256
    """The process's share of the GPU's memory."""
    busy: float = 0.5
    """The share of multiprocessors that the process keeps busy, 0 to 1."""


class FunctionState(msgspec.Struct):
    """A virtual function. Its address follows from ``number``."""

    number: int
    group: int
    driver: str = ""
    override: str = ""
    visible: float = 0.0
    """When it appears, in seconds on the server's clock."""
    ready: float = 0.0
    """When its driver has bound it, in seconds on the server's clock."""


class VgpuState(msgspec.Struct):
    """A vGPU."""

    function: str
    """The address of the virtual function, or of the GPU if mdevs are on the GPU."""
    type_id: int
    uuid: str = ""
    group: int = WHOLE
    """The mdev's IOMMU group, like ``uuid`` only for mdevs."""
    gi: int = WHOLE
    """The GPU instance behind it, WHOLE for none."""
    placement: int = WHOLE
    """Its placement on the GPU or in its GPU instance, WHOLE for none."""
    params: str = ""


class NeighbourState(msgspec.Struct):
    """A function of another vendor behind the root port of a GPU. By default it is the network card in the IOMMU group
    of the GPU.
    """

    driver: str = "igb"
    override: str = ""
    address: str = ""
    """Empty for the function after the GPU's."""
    ids: str = "8086:1521"
    board: str = "8086:0002"
    class_id: str = "020000"
    native: str = "igb"
    """The driver that supports the function natively."""
    group: int = WHOLE
    """Its IOMMU group, WHOLE for that of the GPU."""
    physfn: str = ""
    """Address of the physical function if this is a virtual function."""
    temporary: bool = False
    """Whether it was made after the boot, so that a reboot ends it."""
    total: int = 0
    """Largest possible number of virtual functions."""
    interface: str = ""
    """The network interface that its native driver makes."""
    master: str = ""
    """The bond or bridge that the interface is part of."""
    blocks: list[str] = []
    """The disk that its native driver makes, and the partitions of that disk."""


class VmState(msgspec.Struct):
    """A VM's process, and the functions or mdevs whose VFIO handles it has open."""

    pid: int
    name: str
    devices: list[str]
    busy: float = 0.5
    """The share of the GPU that it wants to keep busy through each vGPU, 0 to 1."""
    licensed: bool = True
    """Whether its guest has a license for its vGPUs."""


class UsbState(msgspec.Struct):
    """A USB device. ``vendor`` and ``id`` are four hex digits, ``klass`` the class of its interface."""

    bus: int
    number: int
    vendor: str
    id: str
    product: str = ""
    manufacturer: str = ""
    klass: str = "08"

    @property
    def path(self) -> str:
        """The device's file."""
        return f"/dev/bus/usb/{self.bus:03}/{self.number:03}"


class DynamicId(msgspec.Struct):
    """An id that was written to ``new_id`` of a driver: ``10de 25b6``."""

    driver: str
    id: str


class GpuState(msgspec.Struct):
    """A GPU."""

    index: int
    product: str
    pci: str
    pci_device: str
    subsystem: str
    architecture: str
    uuid: str
    minor: int
    memory_mib: int
    family: str | None = None
    swapped: bool = False
    guest: bool = False
    """The GPU is passed through to this node, which is a VM that cannot reset it."""
    mig: bool = False
    """The current MIG mode."""
    pending: bool = False
    """The requested MIG mode."""
    persistence: bool = True
    lost: bool = False
    instances: list[InstanceState] = []
    processes: list[ProcessState] = []
    host: str = ""
    """How the vGPU host driver shares the GPU: ``mdev``, ``vfio`` (vendor-specific VFIO), or "" without that driver."""
    compute: bool = False
    """Whether the driver knows C-series types of boards with display outputs."""
    driver: str = "nvidia"
    """The kernel driver that is bound to the GPU."""
    override: str = ""
    """The GPU's driver_override."""
    locked: bool = False
    """NVIDIA's unbindLock."""
    autoprobe: bool = True
    mixed: bool = False
    scheduler: SchedulerState = SchedulerState()
    functions: list[FunctionState] = []
    vgpus: list[VgpuState] = []
    neighbour: NeighbourState | None = None
    others: list[NeighbourState] = []
    """Functions of other vendors behind the same root port, with IOMMU groups of their own."""


_DriverFault = Literal["fail", "hang", "no-effect", "replace-driver", "slow", "unprivileged", "version-mismatch"]
_GpuFault = Literal["busy", "half-create", "kill", "lost", "reset-pending", "unbind-lock", "vf-delay", "xid"]
FaultKind = Literal[_DriverFault, _GpuFault]
KillPhase = Literal["before", "after"]
Creation = Literal["gpu", "compute"]


class InjectedFault(msgspec.Struct):
    """An injected fault. ``kind`` determines which fields apply (see ``faults``)."""

    kind: Stored[FaultKind]
    gpu: int | None = None
    instance: int | None = None
    calls: int | None = None
    until: float | None = None
    call: str | None = None
    code: int | None = None
    when: Stored[KillPhase] = "before"
    nth: int = 1
    what: Stored[Creation] = "gpu"
    path: str | None = None
    delay: float | None = None
    version: str | None = None


class NodeState(msgspec.Struct):
    name: str
    template: str
    boot_id: str
    gpus: list[GpuState]
    driver: str = DEFAULT_DRIVER
    latency: str = "none"
    boots: int = 1
    next_pid: int = 40001
    faults: list[InjectedFault] = []
    iommu: bool = True
    vms: list[VmState] = []
    dynamic_ids: list[DynamicId] = []
    mounts: dict[str, str] = {}
    """Mount points by block device, "swap" for swap space, "raw" for what is open exclusively without a
    mount."""
    block_holders: dict[str, str] = {}
    """Block devices that use another one (``dm-0``), by the device that they use."""
    route: str = ""
    """The network interface of the default route."""
    usb: list[UsbState] = []
    usb_numbers: dict[str, int] = {}
    """The last number that a device got, by bus."""

    @property
    def driver_major(self) -> int:
        major = self.driver.split(".", 1)[0]
        return int(major) if major.isdigit() else 0
