"""Which virtual function carries which new vGPU, and under which UUID."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aliquot.core.model.inventory import Gpu, Vgpu
from aliquot.core.planner.rules import Refusal
from aliquot.core.planner.vgpu.matching import Item
from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.core.planner.vgpu.placement_policies import MOST_TIME_SLICED, Spot


class Carried(NamedTuple):
    """A new vGPU on its function."""

    item: Item
    spot: Spot
    function: str
    uuid: str


def on_the_gpu_itself(gpu: Gpu) -> bool:
    """Whether vGPUs are mdevs of the physical function (before Ampere), so that it carries several."""
    return gpu.virtual is not None and gpu.virtual.total == 0


def usable(gpu: Gpu, bound: frozenset[str]) -> list[tuple[int, str]]:
    """The (number, PCI address) of every virtual function that may carry a vGPU, in numeric order: not one that
    vfio-pci has or shall have, nor one in use without a vGPU. Where vGPUs are mdevs of the GPU itself, its slots.
    """
    if gpu.virtual is None:
        return []
    if on_the_gpu_itself(gpu):
        return [(slot, gpu.pci) for slot in range(MOST_TIME_SLICED)]
    carrying = {v.function for v in gpu.vgpus}
    now = {f.pci: f for f in gpu.virtual.functions}
    numbers = {f.pci: f.number for f in gpu.virtual.functions} or {
        pci: n for n, pci in enumerate(gpu.virtual.addresses)
    }
    busy = {pci for pci, f in now.items() if f.holders and pci not in carrying}
    return sorted((n, pci) for pci, n in numbers.items() if pci not in bound and pci not in busy)


def carry(
    gpu: Gpu, made: Sequence[tuple[Item, Spot]], kept: Sequence[Vgpu], bound: frozenset[str]
) -> tuple[Carried, ...] | Refusal:
    """A function and a UUID for each new vGPU, in the order of creation: what was asked first, then what the vGPU had
    before a reboot, then the lowest free number.
    """
    open_ones = usable(gpu, bound)
    shared = on_the_gpu_itself(gpu)
    taken = set() if shared else {v.function for v in kept}
    uuids = {v.uuid for v in kept if v.uuid} | {item.wish.uuid for item, _ in made if item.wish.uuid}
    free = {pci for _, pci in open_ones} - taken
    where: dict[int, tuple[str, str]] = {}
    for n, (item, _) in enumerate(made):
        if item.wish.function and not shared:
            if item.wish.function not in free:
                return Refusal("NO_FUNCTION", f"{item.wish.function} is no virtual function that can carry a vGPU")
            free.discard(item.wish.function)
            where[n] = item.wish.function, item.wish.uuid
    for n, former in _former(gpu, made, where):
        if shared or former.function in free:
            if former.uuid in uuids:
                continue
            free -= set() if shared else {former.function}
            where[n] = former.function, made[n][0].wish.uuid or former.uuid
            uuids.add(former.uuid)
    numbers = [(n, pci) for n, pci in open_ones if pci in free and stable_uuid(gpu, n) not in uuids]
    known = {pci: n for n, pci in open_ones}
    out: list[Carried] = []
    for n, (item, spot) in enumerate(made):
        if n not in where:
            if not numbers:
                total = len(open_ones)
                return Refusal("NO_FUNCTION", f"{len(made) + len(kept)} vGPUs asked, {total} functions can carry one")
            number, pci = numbers.pop(0)
            where[n] = pci, item.wish.uuid or stable_uuid(gpu, number)
        function, uuid = where[n]
        out.append(Carried(item, spot, function, uuid or stable_uuid(gpu, known[function])))
    return tuple(out)


def _former(gpu: Gpu, made: Sequence[tuple[Item, Spot]], done: dict[int, tuple[str, str]]) -> list[tuple[int, Vgpu]]:
    """Which new vGPU continues which one of before the reboot: of the same type, in the same place if there is one."""
    left = list(gpu.virtual.remembered) if gpu.virtual else []
    pairs: list[tuple[int, Vgpu]] = []
    for same_place in (True, False):
        for n, (item, spot) in enumerate(made):
            if n in done or any(n == m for m, _ in pairs):
                continue
            for vgpu in left:
                place = vgpu.gpu_instance if item.type.mig_backed else vgpu.placement
                fits = vgpu.type_id == item.wish.type_id and item.wish.uuid in ("", vgpu.uuid)
                if fits and (not same_place or (spot is not None and place == spot)):
                    left.remove(vgpu)
                    pairs.append((n, vgpu))
                    break
    return pairs
