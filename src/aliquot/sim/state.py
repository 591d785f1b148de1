"""What a simulated node remembers: mutable records, written to disk after every step."""

from __future__ import annotations

import msgspec

DEFAULT_DRIVER = "580.65.06"

WHOLE = -1
"""Stands for "no GPU instance" in a process record and in an address."""


class ComputeState(msgspec.Struct):
    """A compute instance. ``start`` and ``size`` count compute slots of its GPU instance."""

    id: int
    profile: int
    start: int
    size: int


class InstanceState(msgspec.Struct):
    """A GPU instance. ``start`` and ``size`` are the displayed placement; the id says where it lies inside."""

    id: int
    profile: int
    start: int
    size: int
    compute: list[ComputeState] = []


class ProcessState(msgspec.Struct):
    """A simulated process on a compute instance, or on the whole GPU (``gi`` and ``ci`` WHOLE). ``memory_mib`` is what
    it has of the GPU's memory, ``busy`` the share of its multiprocessors that it keeps busy, 0 to 1.
    """

    pid: int
    name: str
    gi: int = WHOLE
    ci: int = WHOLE
    memory_mib: int = 256
    busy: float = 0.5


class FunctionState(msgspec.Struct):
    """A virtual function. Its address follows from ``number``. ``visible`` and ``ready`` are the times (seconds on the
    server's clock) at which it appears, and at which its driver has bound it.
    """

    number: int
    group: int
    driver: str = ""
    override: str = ""
    visible: float = 0.0
    ready: float = 0.0


class VgpuState(msgspec.Struct):
    """A vGPU. ``function`` is the address of the virtual function, or of the GPU where mdevs lie on it; ``uuid`` and
    ``group`` are the mdev's. ``gi`` is the GPU instance behind it, ``placement`` its place on the GPU, WHOLE for none.
    """

    function: str
    type_id: int
    uuid: str = ""
    group: int = WHOLE
    gi: int = WHOLE
    placement: int = WHOLE
    params: str = ""


class NeighbourState(msgspec.Struct):
    """The network card function that lies in the IOMMU group of a GPU."""

    driver: str = "igb"
    override: str = ""


class VmState(msgspec.Struct):
    """A virtual machine's process, and the functions or mdevs whose VFIO handles it has open."""

    pid: int
    name: str
    devices: list[str]


class DynamicId(msgspec.Struct):
    """An id that somebody wrote to ``new_id`` of a driver: ``10de 25b6``."""

    driver: str
    id: str


class GpuState(msgspec.Struct):
    """One GPU. ``mig`` and ``pending`` are the MIG mode now and wished for; ``guest`` is a GPU passed through to this
    machine, which is a virtual machine that cannot reset it.

    ``host`` says how the vGPU host driver shares it: ``mdev``, ``vfio`` (vendor-specific VFIO), empty without that
    driver; ``compute`` that the driver knows C-series types of boards with display outputs. ``driver`` is the kernel
    driver that has it, ``override`` its driver_override, ``locked`` NVIDIA's unbindLock.
    """

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
    mig: bool = False
    pending: bool = False
    persistence: bool = True
    lost: bool = False
    instances: list[InstanceState] = []
    processes: list[ProcessState] = []
    host: str = ""
    compute: bool = False
    driver: str = "nvidia"
    override: str = ""
    locked: bool = False
    autoprobe: bool = True
    mixed: bool = False
    functions: list[FunctionState] = []
    vgpus: list[VgpuState] = []
    neighbour: NeighbourState | None = None


class InjectedFault(msgspec.Struct):
    """Something that shall go wrong. Which fields count depends on ``kind`` (see ``faults``)."""

    kind: str
    gpu: int | None = None
    instance: int | None = None
    calls: int | None = None
    until: float | None = None
    call: str | None = None
    code: int | None = None
    when: str = "before"
    nth: int = 1
    what: str = "gpu"
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

    @property
    def driver_major(self) -> int:
        major = self.driver.split(".", 1)[0]
        return int(major) if major.isdigit() else 0
