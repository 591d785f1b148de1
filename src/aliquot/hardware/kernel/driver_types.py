"""vGPU types learnt from the driver: those that the catalog lacks, those whose id it lacks, those that it has wrong.

They are remembered in the state directory, because a full GPU of the vendor VFIO world lists nothing.
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
from aliquot.hardware.kernel.framework import Offer

FILE = "driver-vgpu-types.json"
FORMER = "vgpu-types.json"
_MIG = re.compile(r".*[ -](\d)-(\d+)([ABCQ])(ME|NOME|MEALL|GFX)?")
_SLICED = re.compile(r".*-(\d+)([ABCQ])\d?")
_ESTIMATE = "estimate"
_DRIVER = "driver"


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the driver said of a type."""

    name: str
    description: str = ""


Learnt = dict[str, dict[int, Told]]
"""By product (``0x26B910DE:0x185B10DE``), then by type id."""


def _merged(ours: Learnt, older: Learnt) -> Learnt:
    return {each: {**ours.get(each, {}), **older.get(each, {})} for each in {**ours, **older}}


def key(gpu: Gpu) -> str:
    return f"{gpu.pci_device}:{gpu.subsystem}"


class Memory:
    """What was learnt, on disk. It is only a memory: one that cannot be read or written costs names, nothing else."""

    def __init__(self, directory: str) -> None:
        self._file = StateFile(
            os.path.join(directory, FILE), "driver-vgpu-types", Learnt, {}, former=FORMER, merge=_merged
        )
        self._value: Learnt | None = None

    def of(self, gpu: Gpu) -> Mapping[int, Told]:
        return self._load().get(key(gpu), {})

    def learn(self, gpu: Gpu, offers: Iterable[Offer]) -> None:
        """Remember types of this product."""
        told = {o.type_id: Told(o.name, o.description) for o in offers if o.name}
        book = self._load()
        known = book.get(key(gpu), {})
        if any(known.get(type_id) != each for type_id, each in told.items()):
            # A new value, not a changed one: another lane may be reading the old.
            self._value = {**book, key(gpu): {**known, **told}}
            try:
                self._file.save(self._value)
            except AliquotError:
                return  # a reader without the right to write here learns it again next time

    def _load(self) -> Learnt:
        if self._value is None:
            try:
                self._value = self._file.load()
            except AliquotError:
                self._value = {}
        return self._value


def news(table: VgpuTable | None, offers: Iterable[Offer]) -> tuple[Offer, ...]:
    """The offers that say what the table does not."""
    known = {} if table is None else table.by_id
    return tuple(o for o in offers if o.name and (o.type_id not in known or known[o.type_id].name != o.name))


def extended(table: VgpuTable | None, gpu: Gpu, told: Mapping[int, Told]) -> VgpuTable | None:
    """The table with what the driver told in the place of what the catalog has; None where nothing was told."""
    fresh = {i: t for i, t in told.items() if table is None or i not in table.by_id or table.by_id[i].name != t.name}
    if not fresh:
        return None
    by_name = {} if table is None else {t.name: t for t in table.types}
    region = table.region if table is not None else max((_size(t.name) for t in fresh.values()), default=0)
    made = [_type(i, t, by_name, region) for i, t in sorted(fresh.items())]
    names = {t.name for t in made}
    # An id that the driver gives to another name is no longer the catalog's type's: that one is left without an id.
    kept = [
        msgspec.structs.replace(t, id=None) if t.id in fresh else t
        for t in (() if table is None else table.types)
        if t.name not in names
    ]
    if table is None:
        prefix = made[0].name.rpartition("-")[0]
        return VgpuTable(gpu.product, gpu.pci_device, "", prefix, region, tuple(made), gpu.subsystem, source=_DRIVER)
    return msgspec.structs.replace(table, types=(*kept, *made), source=_DRIVER)


def _size(name: str) -> int:
    found = _MIG.fullmatch(name)
    if found:
        return int(found[2])
    sliced = _SLICED.fullmatch(name)
    return int(sliced[1]) if sliced else 0


def _type(type_id: int, told: Told, by_name: Mapping[str, VgpuType], region: int) -> VgpuType:
    """A type as the driver tells it: of a name that the catalog knows, only the id is new."""
    if told.name in by_name:
        known = by_name[told.name]
        return msgspec.structs.replace(known, id=type_id, confidence={**known.confidence, "id": _DRIVER})
    facts = dict(part.strip().partition("=")[::2] for part in told.description.split(",") if "=" in part)
    fb = _number(facts.get("framebuffer", "").removesuffix("M")) or _size(told.name) * 1024
    mig = _MIG.fullmatch(told.name)
    most = _number(facts.get("max_instance", ""))
    guess = 1 if mig else max(region * 1024 // fb, 1) if fb else 1
    like = _like(mig, by_name.values()) if mig else None
    sliced = _SLICED.fullmatch(told.name)
    return VgpuType(
        name=told.name,
        series=mig[3] if mig else sliced[2] if sliced else "",
        kind=MIG_BACKED if mig else TIME_SLICED,
        fb_mib=fb,
        max=most or guess,
        id=type_id,
        profile_id=like.profile_id if like else None,
        profile=like.profile if like else "",
        per_instance=1 if mig else 0,
        heads=_number(facts.get("num_heads", "")) or 1,
        frl=_number(facts.get("frl_config", "")) or 60,
        max_res=facts.get("max_resolution", ""),
        confidence={"id": _DRIVER, "max": _DRIVER if most else _ESTIMATE},
    )


def _like(mig: re.Match[str], types: Iterable[VgpuType]) -> VgpuType | None:
    """A known type of the same GPU instance profile: as many slices, the same attribute."""
    for each in types:
        found = _MIG.fullmatch(each.name) if each.mig_backed else None
        if found and (found[1], found[4]) == (mig[1], mig[4]) and each.profile_id is not None:
            return each
    return None


def _number(text: str) -> int:
    return int(text) if text.isdigit() else 0
