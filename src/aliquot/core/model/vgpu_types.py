"""vGPU types of GPU products, read on demand from packaged data.

The reviewed source is ``catalog/vgpu/*.yaml``, one file per product, with provenance and a confidence word per fact.
"""

from __future__ import annotations

from functools import cache, cached_property, lru_cache

import msgspec

from aliquot.core.model import catalog

TIME_SLICED = "time-sliced"
MIG_BACKED = "mig-backed"


class VgpuType(msgspec.Struct, frozen=True, dict=True):
    """A vGPU type.

    A MIG-backed type needs a GPU instance of ``profile_id``, and at most ``per_instance`` vGPUs share it (more than one
    only on RTX PRO Blackwell).
    """

    name: str
    series: str
    kind: str
    fb_mib: int
    """Profile size in MiB, which counts for the equal-size rule and for packing."""
    max: int
    """Largest number on one GPU in equal-size mode."""
    id: int | None = None
    """The number in ``nvidia-<id>`` (mdev) and in ``creatable_vgpu_types`` (vendor VFIO).

    None if no public source has it. Such a type can be named, but never created or offered.
    """
    per_vm: int = 1
    """Largest number in one VM that the driver allows."""
    mixed: tuple[int, ...] = ()
    """Placement ids in mixed-size mode (GiB)."""
    profile_id: int | None = None
    """The number that nvidia-smi shows."""
    profile: str = ""
    per_instance: int = 0
    heads: int = 1
    frl: int = 60
    max_res: str = ""
    confidence: dict[str, str] = {}

    @property
    def mig_backed(self) -> bool:
        return self.kind == MIG_BACKED

    @property
    def size_gib(self) -> int:
        return self.fb_mib // 1024

    @property
    def short(self) -> str:
        """The name as vgpu-device-manager spells it: ``A2-4Q`` for ``NVIDIA A2-4Q``."""
        return self.name.rpartition(" ")[2]

    @property
    def mdev(self) -> str:
        """The directory of the type in the mdev tree: ``nvidia-746``."""
        return f"nvidia-{self.id}"


class VgpuTable(msgspec.Struct, frozen=True, dict=True):
    """The vGPU types of one product."""

    name: str
    pci_device: str
    architecture: str
    prefix: str
    region: int
    """Size of the largest type in GiB, which is the space of mixed-size mode."""
    types: tuple[VgpuType, ...]
    subsystem: str = ""
    sriov: bool = False
    total_vfs: int | None = None
    """Number of virtual functions. None if not published; then ``at_least`` holds."""
    at_least: int = 0
    first_vf: int | None = None
    """Function number of the first virtual function, relative to the physical one."""
    mixed_size: bool = False
    mig_family: str | None = None
    source: str = "catalog"
    """``catalog``, or ``driver`` if the driver of this host reported types."""

    @cached_property
    def shares_instances(self) -> bool:
        """True if several vGPUs can share a GPU instance."""
        return any(t.per_instance > 1 for t in self.types)

    @cached_property
    def by_id(self) -> dict[int, VgpuType]:
        return {t.id: t for t in self.types if t.id is not None}

    @cached_property
    def by_name(self) -> dict[str, VgpuType]:
        """Types by full name, and by short name if that is unambiguous in this table."""
        shorts: dict[str, list[VgpuType]] = {}
        for each in self.types:
            shorts.setdefault(each.short, []).append(each)
        return {s: found[0] for s, found in shorts.items() if len(found) == 1} | {t.name: t for t in self.types}


class _Row(msgspec.Struct, frozen=True):
    """A row of the index: the file that holds the types of a product."""

    file: str
    name: str
    pci_device: str
    subsystem: str = ""
    prefix: str = ""


@cache
def rows() -> tuple[_Row, ...]:
    """Return every product with vGPU types in the catalog."""
    return msgspec.json.decode(catalog._read("vgpu/index"), type=tuple[_Row, ...])


@cache
def _table(file: str) -> VgpuTable:
    return msgspec.json.decode(catalog._read(f"vgpu/{file}"), type=VgpuTable)


@lru_cache(maxsize=1024)
def table(pci_device: str, subsystem: str = "") -> VgpuTable | None:
    """Return the vGPU types of a GPU by its PCI id (``0x25B610DE``). None for a GPU without a table.

    The subsystem decides if several boards share the id (A2 and A16, Quadro RTX 6000 and 8000).
    """
    found = [r for r in rows() if r.pci_device.lower() == pci_device.lower()]
    exact = [r for r in found if r.subsystem and subsystem.lower().startswith(r.subsystem.lower())]
    if not exact and len(found) > 1:
        exact = [r for r in found if not r.subsystem]
    chosen = exact or found
    if len(chosen) != 1:
        return None
    row = chosen[0]
    return msgspec.structs.replace(_table(row.file), pci_device=row.pci_device, subsystem=row.subsystem)


def tables() -> tuple[VgpuTable, ...]:
    """Return the table of every product, in the order of the index."""
    return tuple(_table(file) for file in dict.fromkeys(r.file for r in rows()))
