"""vGPU types: what a GPU can be shared into for virtual machines, read on demand from packaged data.

The reviewed source is ``catalog/vgpu/*.yaml``, one file per product, with provenance and a confidence word per fact.
"""

from __future__ import annotations

from functools import cache, cached_property, lru_cache

import msgspec

from aliquot.core.model import catalog

TIME_SLICED = "time-sliced"
MIG_BACKED = "mig-backed"


class VgpuType(msgspec.Struct, frozen=True, dict=True):
    """One vGPU type. ``id`` is the number in ``nvidia-<id>`` (mdev) and in ``creatable_vgpu_types`` (vendor VFIO), None
    where no public source gives it: such a type can be named, but never made or offered. ``fb_mib`` is the profile size
    in MiB, which counts for the equal-size rule and for packing; ``max`` the most on one GPU of one size; ``per_vm``
    the most in one virtual machine that the driver allows. ``mixed`` are its placement ids in mixed-size mode (GiB).

    A MIG-backed type needs a GPU instance of ``profile_id`` (the number that nvidia-smi shows) and shares it with at
    most ``per_instance`` of its size (more than one on RTX PRO Blackwell only).
    """

    name: str
    series: str
    kind: str
    fb_mib: int
    max: int
    id: int | None = None
    per_vm: int = 1
    mixed: tuple[int, ...] = ()
    profile_id: int | None = None
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
        """The type's directory in the mdev tree: ``nvidia-746``."""
        return f"nvidia-{self.id}"


class VgpuTable(msgspec.Struct, frozen=True, dict=True):
    """The vGPU types of one product. ``region`` is the size of its largest type in GiB, the room of mixed-size mode;
    ``total_vfs`` its number of virtual functions, None where nobody has published it (``at_least`` then holds);
    ``first_vf`` the function number of the first, relative to the physical one. ``source`` is ``catalog``, or
    ``driver`` where types were learnt from this machine.
    """

    name: str
    pci_device: str
    architecture: str
    prefix: str
    region: int
    types: tuple[VgpuType, ...]
    subsystem: str = ""
    sriov: bool = False
    total_vfs: int | None = None
    at_least: int = 0
    first_vf: int | None = None
    mixed_size: bool = False
    mig_family: str | None = None
    source: str = "catalog"

    @cached_property
    def by_id(self) -> dict[int, VgpuType]:
        return {t.id: t for t in self.types if t.id is not None}

    @cached_property
    def by_name(self) -> dict[str, VgpuType]:
        """Types by full name, and by short name where that is unambiguous here."""
        shorts: dict[str, list[VgpuType]] = {}
        for each in self.types:
            shorts.setdefault(each.short, []).append(each)
        return {s: found[0] for s, found in shorts.items() if len(found) == 1} | {t.name: t for t in self.types}


class _Row(msgspec.Struct, frozen=True):
    """A row of the index: which file holds which product's types."""

    file: str
    name: str
    pci_device: str
    subsystem: str = ""
    prefix: str = ""


@cache
def rows() -> tuple[_Row, ...]:
    """Every product that the catalog knows vGPU types of."""
    return msgspec.json.decode(catalog._read("vgpu/index"), type=tuple[_Row, ...])


@cache
def _table(file: str) -> VgpuTable:
    return msgspec.json.decode(catalog._read(f"vgpu/{file}"), type=VgpuTable)


@lru_cache(maxsize=1024)
def table(pci_device: str, subsystem: str = "") -> VgpuTable | None:
    """The types of a GPU by its PCI id (``0x25B610DE``); the subsystem decides where one id serves several boards
    (A2 and A16, Quadro RTX 6000 and 8000). None for a GPU that is in no table.
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
    """Every product's table, in the order of the index."""
    return tuple(_table(file) for file in dict.fromkeys(r.file for r in rows()))
