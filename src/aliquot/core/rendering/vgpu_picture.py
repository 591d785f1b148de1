"""The vGPUs of a GPU for a picture, over its memory in GiB, now and after a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aliquot.core.model.actions import Action, CreateVgpu, DestroyVgpu, SetFunctions, SetMixedSize, SetPassthrough
from aliquot.core.model.geometry import geometry, geometry_text
from aliquot.core.model.inventory import Gpu
from aliquot.core.model.vgpu_types import VgpuTable, VgpuType

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class DrawnVgpu(msgspec.Struct, frozen=True):
    """A vGPU in a picture. ``start`` and ``size`` are GiB."""

    letter: str
    """Empty inside a GPU instance: there a text shows the letter of the instance."""
    name: str
    key: tuple[str, str]
    size: int
    start: int | None = None
    """None without a placement: vGPUs of one size are drawn side by side, those inside GPU instances not at all."""
    held: bool = False
    fresh: bool = False


def letter(index: int) -> str:
    """Return the n-th letter; a GPU has 48 vGPUs at most."""
    return LETTERS[index % len(LETTERS)]


def vgpu_letter(gpu: Gpu, index: int) -> str:
    """Return the letter of a GPU's n-th vGPU, empty in MIG mode."""
    return "" if gpu.mig.enabled else letter(index)


def current_vgpus(gpu: Gpu, table: VgpuTable | None) -> tuple[DrawnVgpu, ...]:
    """Return the present vGPUs, with letters in the order of their functions."""
    mixed = bool(gpu.virtual and gpu.virtual.mixed_size)
    found = []
    for n, each in enumerate(gpu.vgpus):
        kind = _kind(table, each.type_id)
        place = each.placement if mixed else None
        name, key = short(each.type), each.key
        found.append(DrawnVgpu(vgpu_letter(gpu, n), name, key, _size(kind), place, each.held))
    return tuple(found)


def planned_vgpus(gpu: Gpu, actions: Sequence[Action], table: VgpuTable | None) -> tuple[DrawnVgpu, ...]:
    """Return the planned vGPUs: those that stay keep their letters, new ones get the next."""
    gone = {(a.function, a.uuid) for a in actions if isinstance(a, DestroyVgpu)}
    wiped = any(isinstance(a, SetFunctions) or (isinstance(a, SetPassthrough) and not a.function) for a in actions)
    stay = [s for s in current_vgpus(gpu, table) if s.key not in gone and not wiped]
    modes = [a.on for a in actions if isinstance(a, SetMixedSize)]
    mixed = modes[-1] if modes else bool(gpu.virtual and gpu.virtual.mixed_size and not wiped)
    made = []
    first = len(gpu.instances) if gpu.mig.enabled else len(gpu.vgpus)
    for n, a in enumerate(a for a in actions if isinstance(a, CreateVgpu)):
        size = _size(_kind(table, a.type_id))
        start = a.placement if mixed else None
        name = short(a.type)
        sign = "" if a.instance is not None else letter(first + n)
        made.append(DrawnVgpu(sign, name, (a.function, a.uuid), size, start, fresh=True))
    return (*stay, *made)


def short(name: str) -> str:
    """Return the short name: ``A2-4Q`` for ``NVIDIA A2-4Q``."""
    return name.rpartition(" ")[2]


def summary(vgpus: Sequence[DrawnVgpu]) -> str:
    """Return ``A2-4Q:3  (a held)``, inside GPU instances ``(1 held)``; ``no vGPU`` for none."""
    held = [s.letter for s in vgpus if s.held]
    if held and not all(held):
        held = [str(len(held))]
    return counts(vgpus) + (f"  ({', '.join(held)} held)" if held else "")


def counts(vgpus: Sequence[DrawnVgpu]) -> str:
    """Return ``A2-4Q:3``; ``no vGPU`` for none."""
    return geometry_text(geometry(s.name for s in vgpus)) if vgpus else "no vGPU"


def drawable(gpu: Gpu, table: VgpuTable | None, vgpus: Iterable[DrawnVgpu]) -> bool:
    """Report whether a bar of memory is useful: not if GPU instances show where each vGPU is."""
    return table is not None and table.region > 0 and not gpu.mig.enabled and all(s.size > 0 for s in vgpus)


def _kind(table: VgpuTable | None, type_id: int) -> VgpuType | None:
    return table.by_id.get(type_id) if table else None


def _size(kind: VgpuType | None) -> int:
    return max(1, kind.size_gib) if kind else 0
