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


class Process(msgspec.Struct):
    """A simulated process on a compute instance, or on the whole GPU (``gi`` and ``ci`` WHOLE)."""

    pid: int
    name: str
    gi: int = WHOLE
    ci: int = WHOLE


class GpuState(msgspec.Struct):
    """One GPU. ``mig`` and ``pending`` are the MIG mode now and wished for; ``guest`` is a GPU passed through to this
    machine, which is a virtual machine that cannot reset it.
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
    processes: list[Process] = []


class Fault(msgspec.Struct):
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


class NodeState(msgspec.Struct):
    name: str
    template: str
    boot_id: str
    gpus: list[GpuState]
    driver: str = DEFAULT_DRIVER
    latency: str = "none"
    boots: int = 1
    next_pid: int = 40001
    faults: list[Fault] = []

    @property
    def driver_major(self) -> int:
        major = self.driver.split(".", 1)[0]
        return int(major) if major.isdigit() else 0
