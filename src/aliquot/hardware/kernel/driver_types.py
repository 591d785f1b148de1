"""vGPU types learned from the driver: those that the catalog lacks, lacks the id of, or has wrong. They are stored in
the state directory, because a full GPU with vendor-specific VFIO lists no types.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping

import msgspec

from aliquot.core.model.inventory import Gpu
from aliquot.core.model.vgpu_types import MIG_BACKED, TIME_SLICED, VgpuTable, VgpuType
from aliquot.errors import AliquotError
from aliquot.foundation.state_store import StateFile
from aliquot.hardware.kernel.framework import VgpuTypeOffer

FILE = "driver-vgpu-types.json"
OLD_FILE = "vgpu-types.json"
_MIG = re.compile(r".*[ -](\d)-(\d+)([ABCQ])(ME|NOME|MEALL|GFX)?")
_SLICED = re.compile(r".*-(\d+)([ABCQ])\d?")
_ESTIMATE = "estimate"
_DRIVER = "driver"


class DriverTypeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The driver's information about a vGPU type."""

    name: str
    description: str = ""


TypesByProduct = dict[str, dict[int, DriverTypeInfo]]
"""Keyed by product (``0x26B910DE:0x185B10DE``), then by type id."""


def _merge(ours: TypesByProduct, older: TypesByProduct) -> TypesByProduct:
    return {each: {**ours.get(each, {}), **older.get(each, {})} for each in {**ours, **older}}


def key(gpu: Gpu) -> str:
    return f"{gpu.pci_device}:{gpu.subsystem}"


class LearnedTypes:
    """The learned types on disk. They are only a cache: if it cannot be read or written, only names are lost."""

    def __init__(self, directory: str) -> None:
        self._file = StateFile(
            os.path.join(directory, FILE), "driver-vgpu-types", TypesByProduct, {}, legacy_name=OLD_FILE, merge=_merge
        )
        self._value: TypesByProduct | None = None

    def for_gpu(self, gpu: Gpu) -> Mapping[int, DriverTypeInfo]:
        return self._load().get(key(gpu), {})

    def learn(self, gpu: Gpu, offers: Iterable[VgpuTypeOffer]) -> None:
        """Store types of this product."""
        infos = {o.type_id: DriverTypeInfo(o.name, o.description) for o in offers if o.name}
        types = self._load()
        known = types.get(key(gpu), {})
        if any(known.get(type_id) != each for type_id, each in infos.items()):
            # Replace the value instead of changing it: another thread may be reading it.
            self._value = {**types, key(gpu): {**known, **infos}}
            try:
                self._file.save(self._value)
            except AliquotError:
                return  # a reader without write permission learns it again next time

    def _load(self) -> TypesByProduct:
        if self._value is None:
            try:
                self._value = self._file.load()
            except AliquotError:
                self._value = {}
        return self._value


def new_offers(table: VgpuTable | None, offers: Iterable[VgpuTypeOffer]) -> tuple[VgpuTypeOffer, ...]:
    """Return the offers that the table lacks or names differently."""
    known = {} if table is None else table.by_id
    return tuple(o for o in offers if o.name and (o.type_id not in known or known[o.type_id].name != o.name))


def with_driver_types(table: VgpuTable | None, gpu: Gpu, infos: Mapping[int, DriverTypeInfo]) -> VgpuTable | None:
    """Return the table with the driver's types in place of the catalog's; None if the driver adds nothing."""
    new_infos = {
        i: t for i, t in infos.items() if table is None or i not in table.by_id or table.by_id[i].name != t.name
    }
    if not new_infos:
        return None
    by_name = {} if table is None else {t.name: t for t in table.types}
    region = table.region if table is not None else max((_size(t.name) for t in new_infos.values()), default=0)
    new_types = [_type(i, t, by_name, region) for i, t in sorted(new_infos.items())]
    names = {t.name for t in new_types}
    # The driver gives this id to another name, so the catalog's type loses it.
    remaining = [
        msgspec.structs.replace(t, id=None) if t.id in new_infos else t
        for t in (() if table is None else table.types)
        if t.name not in names
    ]
    if table is None:
        prefix = new_types[0].name.rpartition("-")[0]
        return VgpuTable(
            gpu.product, gpu.pci_device, "", prefix, region, tuple(new_types), gpu.subsystem, source=_DRIVER
        )
    return msgspec.structs.replace(table, types=(*remaining, *new_types), source=_DRIVER)


def _size(name: str) -> int:
    found = _MIG.fullmatch(name)
    if found:
        return int(found[2])
    sliced = _SLICED.fullmatch(name)
    return int(sliced[1]) if sliced else 0


def _type(type_id: int, info: DriverTypeInfo, by_name: Mapping[str, VgpuType], region: int) -> VgpuType:
    """Return a type as the driver describes it. If the catalog knows the name, only the id is new."""
    if info.name in by_name:
        known = by_name[info.name]
        return msgspec.structs.replace(known, id=type_id, confidence={**known.confidence, "id": _DRIVER})
    facts = dict(part.strip().partition("=")[::2] for part in info.description.split(",") if "=" in part)
    fb = _number(facts.get("framebuffer", "").removesuffix("M")) or _size(info.name) * 1024
    mig = _MIG.fullmatch(info.name)
    driver_max = _number(facts.get("max_instance", ""))
    guess = 1 if mig else max(region * 1024 // fb, 1) if fb else 1
    similar = _similar_type(mig, by_name.values()) if mig else None
    sliced = _SLICED.fullmatch(info.name)
    return VgpuType(
        name=info.name,
        series=mig[3] if mig else sliced[2] if sliced else "",
        kind=MIG_BACKED if mig else TIME_SLICED,
        fb_mib=fb,
        max=driver_max or guess,
        id=type_id,
        profile_id=similar.profile_id if similar else None,
        profile=similar.profile if similar else "",
        per_instance=1 if mig else 0,
        heads=_number(facts.get("num_heads", "")) or 1,
        frl=_number(facts.get("frl_config", "")) or 60,
        max_res=facts.get("max_resolution", ""),
        confidence={"id": _DRIVER, "max": _DRIVER if driver_max else _ESTIMATE},
    )


def _similar_type(mig: re.Match[str], types: Iterable[VgpuType]) -> VgpuType | None:
    """Return a known type of the same GPU instance profile: the same number of slices and the same attribute."""
    for each in types:
        found = _MIG.fullmatch(each.name) if each.mig_backed else None
        if found and (found[1], found[4]) == (mig[1], mig[4]) and each.profile_id is not None:
            return each
    return None


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
