"""The catalog: one geometry table per family of GPUs, read on demand from packaged data.

The reviewed source is ``catalog/*.yaml`` in the repository, with provenance and a confidence word per fact; the
package carries one JSON file per family and an index by PCI id, made from it and tested equal.
"""

from __future__ import annotations

from functools import cache, cached_property

import msgspec

from aliquot.core.model.placement import Placement

ENGINES = ("ce", "dec", "enc", "jpeg", "ofa")


class ComputeProfile(msgspec.Struct, frozen=True, dict=True):
    """A compute instance profile inside one GPU instance profile. ``starts``/``size`` count compute slots."""

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
    """A GPU instance profile. ``id`` is the number nvidia-smi shows (19, 14, 9 ...), stable across drivers; ``name``
    is not. ``starts``/``size`` count memory slices. ``memory_mib`` is what the driver lists, never a key.
    """

    id: int
    name: str
    nvml_index: int
    max_instances: int
    compute_slices: int
    starts: tuple[int, ...]
    size: int
    engines: dict[str, int | None]
    compute: tuple[ComputeProfile, ...]
    memory_mib: int | None = None
    sm: int | None = None
    attributes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    since_driver: str | None = None
    confidence: dict[str, str] = {}
    placed_compute: bool = True
    """Whether the driver takes a placement for a new compute instance; else it chooses one itself."""

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
    """A limit beyond placement: ``at-most``, ``excludes``, ``at-most-compute``, ``at-most-gfx``, ``engine-totals``."""

    kind: str
    reason: str
    profiles: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    count: int = 0


class ModeRules(msgspec.Struct, frozen=True):
    """Ampere keeps MIG mode over a reboot and needs a GPU reset to change it; Hopper and later do neither.

    Source: NVIDIA MIG User Guide. Instances survive neither reset nor reboot on any GPU.
    """

    change_needs_gpu_reset: bool = False
    mode_survives_reboot: bool = False


class Product(msgspec.Struct, frozen=True):
    """A GPU as it is sold: ``pci_device`` is ``0x<device><vendor>``, ``name`` is what NVML prints."""

    pci_device: str
    name: str
    memory_mib: int | None = None
    subsystems: tuple[str, ...] = ()


class Family(msgspec.Struct, frozen=True, dict=True):
    """One distinct geometry table. ``memory_slices`` is the number of placement units (8, 4 on A30, 12 on RTX PRO
    6000), ``compute_slices`` the compute slices, ``profiles`` in the order of ``nvidia-smi mig -lgip``.
    """

    name: str
    title: str
    architecture: str
    memory_slices: int
    compute_slices: int
    slot_model: str
    engine_totals: dict[str, int | None]
    profiles: tuple[Profile, ...]
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
        """Profiles by name; an older or newer driver's name (an alias) also finds its profile."""
        aliases = {alias: p for p in self.profiles for alias in p.aliases}
        return aliases | {p.name: p for p in self.profiles}

    @cached_property
    def plain_profiles(self) -> tuple[Profile, ...]:
        """Profiles without attributes: the ones that count as choices when the driver picks a place."""
        return tuple(p for p in self.profiles if not p.attributes)


class Device(msgspec.Struct, frozen=True):
    """A row of the PCI id index. ``mig_family`` is None for GPUs that cannot be partitioned."""

    pci_device: str
    name: str
    mig_family: str | None = None
    architecture: str = ""
    subsystems: tuple[str, ...] = ()


def _read(name: str) -> bytes:
    # importlib.resources would cost a fifth of a whole `aliquot plan`.
    with open(f"{__file__.rpartition('/')[0]}/data/{name}.json", "rb") as stream:
        return stream.read()


@cache
def family(name: str) -> Family:
    """The family's table. Raises KeyError if there is none of that name."""
    if name not in family_names():
        raise KeyError(name)
    return msgspec.json.decode(_read(name), type=Family)


@cache
def devices() -> tuple[Device, ...]:
    """Every GPU in the catalog, MIG-capable or not."""
    return msgspec.json.decode(_read("index"), type=tuple[Device, ...])


@cache
def family_names() -> tuple[str, ...]:
    """The names of all MIG families, ascending."""
    return tuple(sorted({d.mig_family for d in devices() if d.mig_family}))


def family_of_device(pci_device: str, subsystem: str | None = None) -> str | None:
    """The MIG family of a PCI id (``0x20B010DE``); the subsystem decides where one id serves several boards."""
    rows = [d for d in devices() if d.pci_device.lower() == pci_device.lower()]
    exact = [d for d in rows if subsystem and any(s.lower() == subsystem.lower()[:6] for s in d.subsystems)]
    return next((d.mig_family for d in exact or rows), None)
