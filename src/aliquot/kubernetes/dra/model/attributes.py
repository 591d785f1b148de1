"""Attributes and capacities of devices, with the names of NVIDIA's driver.

``tests/unit/kubernetes/dra/model/nvidia_attributes.py`` lists them with their types and the version. An attribute whose
value is unknown is left out.

NVIDIA gives a GPU in dynamic MIG the greatest capacities of its profiles. Here a GPU has those of the whole board.

Aliquot adds ``aliquot.dev/placementStart`` and ``aliquot.dev/placementSize`` in memory slices. ``aliquot.dev/warm``
reports whether the instance exists and waits for a claim.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from aliquot.core.model import catalog
from aliquot.core.model.catalog import Family, Profile
from aliquot.core.model.facts import Facts, GpuFacts
from aliquot.core.model.inventory import Gpu
from aliquot.kubernetes.dra.model.device import PCI_BUS_ID, PLACEMENT_SIZE, PLACEMENT_START, WARM
from aliquot.kubernetes.dra.model.objects import DeviceAttribute

MIB = 1 << 20
STANDARD_DOMAIN = "resource.kubernetes.io"
ENGINE_CAPACITIES = {
    "ce": "copyEngines",
    "dec": "decoders",
    "enc": "encoders",
    "jpeg": "jpegEngines",
    "ofa": "ofaEngines",
}
_ARCHITECTURES = {"ada": "Ada Lovelace"}
"""Spellings of NVIDIA's driver that are not the catalog's word with a capital."""
_LONGEST = 64
"""Maximum length of a string attribute."""

Attributes = dict[str, DeviceAttribute]


def common_attributes(gpu: Gpu, facts: Facts | None) -> Attributes:
    """Return the attributes that a GPU shares with its MIG devices."""
    own = next((each for each in facts.gpus if each.pci == gpu.pci), None) if facts is not None else None
    found = {
        "productName": text(gpu.product),
        "brand": text(own.brand if own is not None else ""),
        "architecture": text(_architecture(gpu)),
        PCI_BUS_ID: text(gpu.pci),
        f"{STANDARD_DOMAIN}/pcieRoot": text(own.pcie_root if own is not None else ""),
        "addressingMode": text(own.addressing_mode if own is not None else ""),
        **dict(_versions(facts, own)),
    }
    if own is not None and own.numa_node is not None and own.numa_node >= 0:
        found[f"{STANDARD_DOMAIN}/numaNode"] = number(own.numa_node)
    return {name: value for name, value in found.items() if value != text("")}


def whole_attributes(gpu: Gpu) -> Attributes:
    """Return the attributes of a whole GPU besides the common ones."""
    return {"type": text("gpu"), "uuid": text(gpu.uuid)}


def instance_attributes(gpu: Gpu, profile: Profile, start: int, warm: bool) -> Attributes:
    """Return the attributes of a placement besides the common ones."""
    return {
        "type": text("mig"),
        "parentUUID": text(gpu.uuid),
        "profile": text(profile.name),
        PLACEMENT_START: number(start),
        PLACEMENT_SIZE: number(profile.size),
        WARM: DeviceAttribute(bool_value=warm),
    }


def whole_capacity(gpu: Gpu, facts: Facts | None, family: Family | None) -> dict[str, int]:
    """Return the capacities of a whole GPU."""
    own = next((each for each in facts.gpus if each.pci == gpu.pci), None) if facts is not None else None
    memory = own.memory_mib if own is not None else 0
    found: dict[str, int | None] = {}
    if family is not None:
        memory = memory or max((p.memory_mib or 0 for p in family.profiles), default=0)
        found = {"multiprocessors": family.sm_total, **_engines(family.engine_totals)}
    return _known(memory, found)


def instance_capacity(profile: Profile) -> dict[str, int]:
    """Return the capacities of an instance."""
    return _known(profile.memory_mib or 0, {"multiprocessors": profile.sm, **_engines(profile.engines)})


@lru_cache(maxsize=64)
def product_family(product: str) -> Family | None:
    """Return the family of a ``productName``. None for a GPU without MIG, and for an unknown one."""
    name = next((d.mig_family for d in catalog.devices() if d.mig_family and product == d.name), None)
    return catalog.family(name) if name else None


def text(value: str) -> DeviceAttribute:
    return DeviceAttribute(string_value=value[:_LONGEST])


def number(value: int) -> DeviceAttribute:
    return DeviceAttribute(int_value=value)


def semantic_version(version: str) -> str:
    """Return ``major.minor.patch`` of a version of NVIDIA's: ``12.8`` is ``12.8.0``. Empty if it is not one."""
    parts = version.split(".")
    if not version or len(parts) > 3 or not all(part.isdecimal() and part.isascii() for part in parts):
        return ""
    return ".".join(str(int(part)) for part in [*parts, "0", "0"][:3])


def _versions(facts: Facts | None, own: GpuFacts | None) -> Iterator[tuple[str, DeviceAttribute]]:
    if own is not None and own.compute_capability != (0, 0):
        yield "cudaComputeCapability", DeviceAttribute(version_value="{}.{}.0".format(*own.compute_capability))
    if facts is not None:
        driver = semantic_version(facts.driver)
        if driver:
            yield "driverVersion", DeviceAttribute(version_value=driver)
        if facts.cuda != (0, 0):
            yield "cudaDriverVersion", DeviceAttribute(version_value="{}.{}.0".format(*facts.cuda))


def _architecture(gpu: Gpu) -> str:
    word = next((d.architecture for d in catalog.devices() if d.pci_device.lower() == gpu.pci_device.lower()), "")
    return _ARCHITECTURES.get(word, word.capitalize())


def _engines(engines: dict[str, int | None]) -> dict[str, int | None]:
    return {name: engines.get(engine) for engine, name in ENGINE_CAPACITIES.items()}


def _known(memory_mib: int, counts: dict[str, int | None]) -> dict[str, int]:
    memory = {"memory": memory_mib * MIB} if memory_mib else {}
    return memory | {name: count for name, count in counts.items() if count is not None}
