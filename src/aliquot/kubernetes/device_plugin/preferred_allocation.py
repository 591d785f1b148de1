"""Which of the free devices kubelet should take, and why these.

``packed`` (the default) opens as few untouched GPUs as it can and goes on where most is allocated already. MIG devices
are isolated from each other, so nothing is won by spreading them, while a GPU that nobody is on can be cut anew, reset
or given away whole without disturbing anyone. ``distributed`` is the device plugin's own default: even load.

The choice is exact: costs add up over GPUs, so that a knapsack over (GPU, number taken) finds the least one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import add
from typing import Literal

import msgspec

from aliquot.kubernetes.gpu.device_resources import ResourceDevice

AllocationPolicy = Literal["packed", "distributed"]

Cost = tuple[int, ...]
Pick = tuple[Cost, tuple[str, ...]]
_NOTHING: Cost = (0, 0, 0, 0, 0, 0, 0)


class AllocatableGpu(msgspec.Struct, frozen=True):
    """One GPU of one resource: ids that must be taken, ids that may be, how many are in use, its place in the list."""

    place: int
    numa: int | None
    required: tuple[str, ...]
    free: tuple[str, ...]
    used: int


def preferred(
    available: Collection[str],
    must_include: Collection[str],
    size: int,
    devices: Sequence[ResourceDevice],
    policy: AllocationPolicy,
) -> tuple[str, ...]:
    """``size`` device ids: all of ``must_include``, the rest from ``available``; fewer where there are not enough.

    ``devices`` are all devices of the resource, in the order to prefer among equals. Ids that it does not know, or
    that are not healthy, are passed over unless they must be taken.
    """
    known = {d.id for d in devices}
    unknown = tuple(sorted(set(must_include) - known))
    gpus = _gpus(set(available), set(must_include), devices)
    wanted = min(size - len(unknown), sum(len(g.required) + len(g.free) for g in gpus))
    forced = sum(len(g.required) for g in gpus)
    taken = _cheapest(gpus, max(wanted, forced), _packed if policy == "packed" else _distributed)
    place = {d.id: n for n, d in enumerate(devices)}
    return unknown + tuple(sorted(taken, key=place.__getitem__))


def _gpus(available: set[str], required: set[str], devices: Sequence[ResourceDevice]) -> list[AllocatableGpu]:
    by_gpu: dict[str, list[ResourceDevice]] = {}
    for device in devices:
        by_gpu.setdefault(device.gpu, []).append(device)
    found = []
    for place, gpu_devices in enumerate(by_gpu.values()):
        forced = tuple(d.id for d in gpu_devices if d.id in required)
        free = tuple(d.id for d in gpu_devices if d.id in available and d.healthy and d.id not in required)
        used = sum(d.healthy for d in gpu_devices if d.id not in available and d.id not in required)
        found.append(AllocatableGpu(place, gpu_devices[0].numa, forced, free, used))
    return found


def _packed(gpu: AllocatableGpu, taken: int) -> Cost:
    """Untouched GPUs opened, GPUs touched, then most used first, least left over, first in the list. NUMA nodes come
    before all this and are added by ``_cheapest``.
    """
    if not taken:
        return _NOTHING
    opened = int(not gpu.used and not gpu.required)
    left = len(gpu.required) + len(gpu.free) - taken
    return (0, opened, 1, -gpu.used * taken, 0, left, gpu.place * taken)


def _distributed(gpu: AllocatableGpu, taken: int) -> Cost:
    """Each further device costs as many as are on its GPU already: least where the load is most even."""
    crowding = sum(range(gpu.used, gpu.used + taken))
    return (crowding, 0, 0, 0, 0, 0, gpu.place * taken)


def _cheapest(
    gpus: Sequence[AllocatableGpu], size: int, cost: Callable[[AllocatableGpu, int], Cost]
) -> tuple[str, ...]:
    """The ids of the least cost. NUMA nodes are opened at a price: first for ``packed``, second for ``distributed``;
    among nodes the one with fewest free devices, so that the emptier one stays whole.
    """
    nodes: dict[int | None, list[AllocatableGpu]] = {}
    for gpu in gpus:
        nodes.setdefault(gpu.numa, []).append(gpu)
    best: dict[int, Pick] = {0: (_NOTHING, ())}
    for node_gpus in nodes.values():
        free = sum(len(g.free) for g in node_gpus)
        opening: Cost = (0, 1, 0, 0, free, 0, 0) if cost is _distributed else (1, 0, 0, 0, free, 0, 0)
        inside: dict[int, Pick] = {0: (_NOTHING, ())}
        for gpu in node_gpus:
            inside = _combined(inside, _choices(gpu, size, cost), size)
        opened = {n: (_sum(c, opening) if n else c, ids) for n, (c, ids) in inside.items()}
        best = _combined(best, opened, size)
    return best[size][1]


def _choices(gpu: AllocatableGpu, size: int, cost: Callable[[AllocatableGpu, int], Cost]) -> dict[int, Pick]:
    ids = gpu.required + gpu.free
    return {n: (cost(gpu, n), ids[:n]) for n in range(len(gpu.required), min(len(ids), size) + 1)}


def _combined(one: dict[int, Pick], other: dict[int, Pick], size: int) -> dict[int, Pick]:
    out: dict[int, Pick] = {}
    for n, (first, ids) in one.items():
        for m, (second, more) in other.items():
            if n + m <= size:
                total = _sum(first, second)
                if n + m not in out or total < out[n + m][0]:
                    out[n + m] = (total, ids + more)
    return out


def _sum(one: Cost, other: Cost) -> Cost:
    return tuple(map(add, one, other))
