"""The catalog: one geometry table per family of GPUs, read on demand from packaged data.

The reviewed source is ``catalog/*.yaml`` in the repository, with provenance and a confidence word per fact. The package
contains one JSON file per family and an index by PCI id. Both are generated from the source, and a test compares them.
"""

from __future__ import annotations

from functools import cache, cached_property

import msgspec

from aliquot.core.model.placement import Placement

ENGINES = ("ce", "dec", "enc", "jpeg", "ofa")


class ComputeProfile(msgspec.Struct, frozen=True, dict=True):
    """A compute instance profile of one GPU instance profile. ``starts`` and ``size`` count compute slots."""

    id: int
    name: str
    nvml_index: int
    max_instances: int
    compute_slices: int
    starts: tuple[int, ...]
    size: int
    sm: int | None = None
    default: bool = False

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(Placement(start, self.size) for start in self.starts)


class Profile(msgspec.Struct, frozen=True, dict=True):
    """A GPU instance profile. ``starts`` and ``size`` count memory slices."""

    id: int
    """The number that nvidia-smi shows (19, 14, 9 ...). Unlike ``name``, it is stable across drivers."""
    name: str
    nvml_index: int
    max_instances: int
    compute_slices: int
    starts: tuple[int, ...]
    size: int
    engines: dict[str, int | None]
    compute: tuple[ComputeProfile, ...]
    memory_mib: int | None = None
    """The memory that the driver lists, in MiB. Never used as a key."""
    sm: int | None = None
    attributes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    since_driver: str | None = None
    confidence: dict[str, str] = {}
    placed_compute: bool = True
    """Whether the driver accepts a placement for a new compute instance. If not, it chooses one itself."""

    @cached_property
    def placements(self) -> tuple[Placement, ...]:
        return tuple(Placement(start, self.size) for start in self.starts)

    @cached_property
    def default_compute(self) -> ComputeProfile:
        """The compute instance that covers the whole GPU instance."""
        return next(c for c in self.compute if c.default)

    @property
    def gfx(self) -> bool:
        return "gfx" in self.attributes

    def compute_profile(self, profile_id: int) -> ComputeProfile | None:
        return next((c for c in self.compute if c.id == profile_id), None)

    def placement(self, start: int) -> Placement:
        return Placement(start, self.size)


class Rule(msgspec.Struct, frozen=True):
    """A limit besides placement."""

    kind: str
    """``at-most``, ``excludes``, ``at-most-compute``, ``at-most-gfx`` or ``engine-totals``."""
    reason: str
    profiles: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    count: int = 0


class ModeRules(msgspec.Struct, frozen=True):
    """The behaviour of MIG mode on an architecture.

    Ampere keeps MIG mode over a reboot and needs a GPU reset to change it. Hopper and later do neither. Instances
    survive neither a reset nor a reboot on any GPU. Source: NVIDIA MIG User Guide.
    """

    change_needs_gpu_reset: bool = False
    mode_survives_reboot: bool = False


class Product(msgspec.Struct, frozen=True):
    """A GPU product."""

    pci_device: str
    """``0x<device><vendor>``"""
    name: str
    """The name that NVML prints."""
    memory_mib: int | None = None
    subsystems: tuple[str, ...] = ()


class Family(msgspec.Struct, frozen=True, dict=True):
    """A distinct geometry table."""

    name: str
    title: str
    architecture: str
    memory_slices: int
    """Number of placement units: 8, or 4 on A30 and 12 on RTX PRO 6000."""
    compute_slices: int
    slot_model: str
    engine_totals: dict[str, int | None]
    profiles: tuple[Profile, ...]
    """In the order of ``nvidia-smi mig -lgip``."""
    rules: tuple[Rule, ...] = ()
    products: tuple[Product, ...] = ()
    mode: ModeRules = ModeRules()
    sm_total: int | None = None
    driver_min: str | None = None
    source: str = "catalog"
    estimates: tuple[str, ...] = ()

    def __hash__(self) -> int:
        return self._content_hash

    @cached_property
    def _content_hash(self) -> int:
        return hash(msgspec.json.encode(self, order="deterministic"))

    @cached_property
    def by_id(self) -> dict[int, Profile]:
        return {p.id: p for p in self.profiles}

    @cached_property
    def without_placed_compute(self) -> Family:
        """The same table for a driver that places compute instances itself."""
        profiles = tuple(msgspec.structs.replace(p, placed_compute=False) for p in self.profiles)
        return msgspec.structs.replace(self, profiles=profiles)

    @cached_property
    def by_name(self) -> dict[str, Profile]:
        """Profiles by name. The name that an older or newer driver uses (an alias) also finds its profile."""
        aliases = {alias: p for p in self.profiles for alias in p.aliases}
        return aliases | {p.name: p for p in self.profiles}

    @cached_property
    def plain_profiles(self) -> tuple[Profile, ...]:
        """Profiles without attributes. These count as choices when the driver picks a placement."""
        return tuple(p for p in self.profiles if not p.attributes)


class Device(msgspec.Struct, frozen=True):
    """A row of the PCI id index. ``mig_family`` is None for GPUs that cannot be partitioned."""

    pci_device: str
    name: str
    mig_family: str | None = None
    architecture: str = ""
    subsystems: tuple[str, ...] = ()


def _read(name: str) -> bytes:
    # importlib.resources would take a fifth of the time of `aliquot plan`.
    with open(f"{__file__.rpartition('/')[0]}/data/{name}.json", "rb") as stream:
        return stream.read()


@cache
def family(name: str) -> Family:
    """Return the geometry table of a family. Raises KeyError for an unknown name."""
    if name not in family_names():
        raise KeyError(name)
    return msgspec.json.decode(_read(name), type=Family)


@cache
def devices() -> tuple[Device, ...]:
    """Return every GPU in the catalog, MIG-capable or not."""
    return msgspec.json.decode(_read("index"), type=tuple[Device, ...])


@cache
def family_names() -> tuple[str, ...]:
    """Return the names of all MIG families, ascending."""
    return tuple(sorted({d.mig_family for d in devices() if d.mig_family}))


def family_of_device(pci_device: str, subsystem: str | None = None) -> str | None:
    """Return the MIG family of a PCI id (``0x20B010DE``). The subsystem decides if several boards share the id."""
    rows = [d for d in devices() if d.pci_device.lower() == pci_device.lower()]
    exact = [d for d in rows if subsystem and any(s.lower() == subsystem.lower()[:6] for s in d.subsystems)]
    return next((d.mig_family for d in exact or rows), None)
