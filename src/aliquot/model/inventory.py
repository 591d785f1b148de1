"""What is: the GPUs of one node at one moment, frozen and fingerprinted."""

from __future__ import annotations

from functools import cached_property

import msgspec

from aliquot.model import catalog
from aliquot.model.placement import Placement

API_VERSION = "aliquot/v1"


class Holder(msgspec.Struct, frozen=True):
    """What is on an instance: a process, pod, VM, job or container. ``id`` is a pid for a process."""

    kind: str
    id: str
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.id}" + (f" ({self.name})" if self.name else "")


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


class Mig(msgspec.Struct, frozen=True):
    """MIG mode: ``enabled`` or ``disabled``, now and after the next reset."""

    capable: bool = False
    current: str = "disabled"
    pending: str = "disabled"

    @property
    def enabled(self) -> bool:
        return self.current == "enabled"


class Gpu(msgspec.Struct, frozen=True):
    """One physical GPU. ``index`` is for showing only; identity is ``pci`` and ``uuid``. ``holders`` are clients of
    the whole GPU, outside any instance. ``swapped`` says that the board's missing compute slice lies in the low half,
    so that the driver's own choice of place is mirrored (None: not known).
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
    vgpus: tuple[str, ...] = ()
    passthrough: bool = False
    reset: bool = True
    swapped: bool | None = None
    lost: bool = False

    def instance(self, instance_id: int) -> GpuInstance | None:
        return next((i for i in self.instances if i.id == instance_id), None)


class Inventory(msgspec.Struct, frozen=True, dict=True):
    """A node. ``tables`` carries the geometry tables that were read from the driver because the catalog has none, or
    has other numbers; ``notes`` are sentences about the machine.
    """

    node: str
    gpus: tuple[Gpu, ...]
    api_version: str = msgspec.field(name="apiVersion", default=API_VERSION)
    kind: str = "Inventory"
    driver: str = ""
    nvml: str = ""
    tables: tuple[catalog.Family, ...] = ()
    notes: tuple[str, ...] = ()

    def family(self, gpu: Gpu) -> catalog.Family:
        """The geometry table that holds for a MIG-capable GPU. Raises KeyError where there is none."""
        for table in self.tables:
            if table.name == gpu.family:
                return table
        return catalog.family(gpu.family or "")

    def gpu(self, pci: str) -> Gpu:
        """The GPU at a PCI address. Raises KeyError."""
        for gpu in self.gpus:
            if gpu.pci == pci:
                return gpu
        raise KeyError(pci)

    @cached_property
    def fingerprint(self) -> str:
        """A digest of identity, driver, modes and instances. Holders come and go and are left out: they are read
        again before each destroy.
        """
        import hashlib

        def instance(i: GpuInstance) -> object:
            return [i.id, i.profile_id, i.placement, [[c.id, c.profile_id, c.placement] for c in i.compute_instances]]

        facts = [self.driver] + [
            [g.pci, g.uuid, g.product, g.mig.current, g.mig.pending, [instance(i) for i in g.instances], g.vgpus]
            for g in self.gpus
        ]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:16]
