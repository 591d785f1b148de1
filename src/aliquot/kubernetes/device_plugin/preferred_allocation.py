"""Choice of the free devices that kubelet should allocate.

``packed`` (the default) uses as few idle GPUs as possible and prefers GPUs with the most allocated devices. MIG devices
are isolated from each other, so spreading them gains nothing. A GPU that stays idle can be repartitioned, reset or
allocated whole without disturbing a workload. ``distributed``, the default of NVIDIA's plugin, balances the load.

The choice is exact: costs add up over GPUs, so a knapsack over (GPU, number of devices) finds the cheapest.
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
    """A GPU with its devices of one resource."""

    place: int
    """Index in the list of GPUs."""
    numa: int | None
    required: tuple[str, ...]
    """Ids that must be taken."""
    free: tuple[str, ...]
    """Ids that may be taken."""
    used: int
    """Number of devices in use."""


def preferred(
    available: Collection[str],
    must_include: Collection[str],
    size: int,
    devices: Sequence[ResourceDevice],
    policy: AllocationPolicy,
) -> tuple[str, ...]:
    """Choose ``size`` device ids: all of ``must_include``, the rest from ``available``; fewer if there are too few.

    ``devices`` are all devices of the resource, in order of preference among equals. Unknown and unhealthy ids are
    skipped unless they must be included.
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
    """Return the cost of taking devices of a GPU: idle GPUs opened, GPUs used, most used, least left, list order.

    NUMA nodes come first; ``_cheapest`` adds their cost.
    """
    if not taken:
        return _NOTHING
    opened = int(not gpu.used and not gpu.required)
    left = len(gpu.required) + len(gpu.free) - taken
    return (0, opened, 1, -gpu.used * taken, 0, left, gpu.place * taken)


def _distributed(gpu: AllocatableGpu, taken: int) -> Cost:
    """Return the cost of taking devices of a GPU: the cheapest choice has the most even load.

    Each further device costs the number of devices that are already in use on its GPU.
    """
    crowding = sum(range(gpu.used, gpu.used + taken))
    return (crowding, 0, 0, 0, 0, 0, gpu.place * taken)


def _cheapest(
    gpus: Sequence[AllocatableGpu], size: int, cost: Callable[[AllocatableGpu, int], Cost]
) -> tuple[str, ...]:
    """Return the ids with the lowest cost.

    Using another NUMA node has a cost, the most important one for ``packed`` and the second for ``distributed``. Among
    nodes, the one with the fewest free devices is cheapest, so that the emptier one stays whole.
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
