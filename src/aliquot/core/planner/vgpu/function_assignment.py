"""Assignment of virtual functions and UUIDs to new vGPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from aliquot.core.model.inventory import Gpu, Vgpu
from aliquot.core.planner.rules import RuleRefusal
from aliquot.core.planner.vgpu.matching import WantedVgpu
from aliquot.core.planner.vgpu.naming import stable_uuid
from aliquot.core.planner.vgpu.placement_policies import MOST_TIME_SLICED, VgpuPlacement


class FunctionAssignment(NamedTuple):
    """A new vGPU on its function."""

    item: WantedVgpu
    placement: VgpuPlacement
    function: str
    uuid: str


def uses_physical_function(gpu: Gpu) -> bool:
    """Report whether vGPUs are mdevs of the physical function (before Ampere), which then has several."""
    return gpu.virtual is not None and gpu.virtual.total == 0


def usable_functions(gpu: Gpu, bound: frozenset[str]) -> list[tuple[int, str]]:
    """Return the (number, PCI address) of every virtual function that may get a vGPU, in numeric order.

    Excludes those that are or will be bound to vfio-pci, and those in use without a vGPU. If vGPUs are mdevs of the GPU
    itself, returns its slots.
    """
    if gpu.virtual is None:
        return []
    if uses_physical_function(gpu):
        return [(slot, gpu.pci) for slot in range(MOST_TIME_SLICED)]
    carrying = {v.function for v in gpu.vgpus}
    now = {f.pci: f for f in gpu.virtual.functions}
    numbers = {f.pci: f.number for f in gpu.virtual.functions} or {
        pci: n for n, pci in enumerate(gpu.virtual.addresses)
    }
    busy = {pci for pci, f in now.items() if f.holders and pci not in carrying}
    return sorted((n, pci) for pci, n in numbers.items() if pci not in bound and pci not in busy)


def assign_functions(
    gpu: Gpu, to_create: Sequence[tuple[WantedVgpu, VgpuPlacement]], retained: Sequence[Vgpu], bound: frozenset[str]
) -> tuple[FunctionAssignment, ...] | RuleRefusal:
    """Assign a function and a UUID to each new vGPU, in the order of creation.

    The request decides first, then what the vGPU had before a reboot, then the lowest free number.
    """
    candidates = usable_functions(gpu, bound)
    shared = uses_physical_function(gpu)
    taken = set() if shared else {v.function for v in retained}
    uuids = {v.uuid for v in retained if v.uuid} | {item.request.uuid for item, _ in to_create if item.request.uuid}
    free = {pci for _, pci in candidates} - taken
    requests = [item.request for item, _ in to_create]
    requested = {n: request.function for n, request in enumerate(requests) if request.function and not shared}
    for function in requested.values():
        if function not in free:
            return RuleRefusal("NO_FUNCTION", f"{function} is not a virtual function that can have a vGPU")
        free.discard(function)
    assigned = {n: (function, requests[n].uuid) for n, function in requested.items()}
    for n, recorded in _match_recorded(gpu, to_create, assigned):
        if recorded.uuid not in uuids and (shared or recorded.function in free):
            free -= set() if shared else {recorded.function}
            assigned[n] = recorded.function, requests[n].uuid or recorded.uuid
            uuids.add(recorded.uuid)
    numbers = [(n, pci) for n, pci in candidates if pci in free and stable_uuid(gpu, n) not in uuids]
    missing = [n for n in range(len(to_create)) if n not in assigned]
    if len(missing) > len(numbers):
        wanted = len(to_create) + len(retained)
        return RuleRefusal("NO_FUNCTION", f"{wanted} vGPUs requested, {len(candidates)} functions can have one")
    for n, (number, pci) in zip(missing, numbers, strict=False):
        assigned[n] = pci, requests[n].uuid or stable_uuid(gpu, number)
    known = {pci: n for n, pci in candidates}
    out: list[FunctionAssignment] = []
    for n, (item, placement) in enumerate(to_create):
        function, uuid = assigned[n]
        out.append(FunctionAssignment(item, placement, function, uuid or stable_uuid(gpu, known[function])))
    return tuple(out)


def _match_recorded(
    gpu: Gpu, to_create: Sequence[tuple[WantedVgpu, VgpuPlacement]], assigned: dict[int, tuple[str, str]]
) -> list[tuple[int, Vgpu]]:
    """Match new vGPUs to those of before a reboot: of the same type, preferably with the same placement."""
    left = list(gpu.virtual.recorded_vgpus) if gpu.virtual else []
    pairs: list[tuple[int, Vgpu]] = []
    for same_place in (True, False):
        for n, (item, placement) in enumerate(to_create):
            if n in assigned or any(n == m for m, _ in pairs):
                continue
            for vgpu in left:
                place = vgpu.gpu_instance if item.type.mig_backed else vgpu.placement
                fits = vgpu.type_id == item.request.type_id and item.request.uuid in ("", vgpu.uuid)
                if fits and (not same_place or (placement is not None and place == placement)):
                    left.remove(vgpu)
                    pairs.append((n, vgpu))
                    break
    return pairs
